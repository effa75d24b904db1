// SPDX-License-Identifier: Apache-2.0
#include "convert/respelled_tensors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/head_names.h"
#include "hydrant/error.h"

namespace hydrant::convert {
namespace {

using checkpoint::Presence;
using checkpoint::ShardAxis;
using checkpoint::StoredTensor;
using checkpoint::TensorRow;
using draft::Form;
using draft::HeadPlace;
using draft::HeadTensor;
using draft::Size;

// --- A base by its sizes ---

int64_t RowsIn(const draft::HeadsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.tensors->Find(name);
  return tensor == nullptr || tensor->shape().empty() ? 0 : tensor->shape().front();
}

// Rows of the first tensor in the file whose table row says that they are as many as `size`; 0: there is none.
int64_t SizeIn(const draft::HeadsFile& file, Size size) {
  for (const HeadTensor& tensor : file.info.rows->tensors) {
    if (tensor.form != Form::kLinear || tensor.outputs != size) continue;
    for (const int32_t layer : {0, 1, file.info.num_layers}) {
      const int64_t rows = RowsIn(file, NameOf(file.info, tensor, 0, layer) + ".weight");
      if (rows > 0) return rows;
    }
  }
  return 0;
}

// Kinds whose config has the base's sizes are checked against those; else rows of tensors say them.
int64_t HiddenSize(const draft::HeadsFile& file) {
  if (file.info.hidden_size > 0) return file.info.hidden_size;
  if (file.info.layer != nullptr && file.info.layer->hidden_size > 0) return file.info.layer->hidden_size;
  for (const HeadTensor& tensor : file.info.rows->tensors) {
    if (tensor.inputs != Size::kStateInputs) continue;
    const StoredTensor* first = file.tensors->Find(NameOf(file.info, tensor, 0, 0) + ".weight");
    return first == nullptr || first->shape().size() != 2 ? 0 : first->shape().back();
  }
  return SizeIn(file, Size::kHiddenSize);
}

// Of a token map's rows the config alone says out of how many tokens they are.
int64_t VocabSize(const draft::HeadsFile& file) {
  if (file.info.vocab_size > 0) return file.info.vocab_size;
  if (file.info.layer != nullptr && file.info.layer->vocab_size > 0) return file.info.layer->vocab_size;
  if (!file.info.has_token_map) return std::max<int64_t>(1, SizeIn(file, Size::kDraftRows));
  if (file.info.config_file.empty()) {
    throw FileError(file.info.weights_file,
                    "holds a token map, but there is no config.json with 'vocab_size' beside it",
                    "put the config.json that was published with the heads into the same folder");
  }
  const base::Json config = base::ReadJsonFile(file.info.config_file);
  return base::JsonView(config, file.info.config_file).At("vocab_size").Int(1, INT32_MAX);
}

// The sizes of the heads' own layer by its projections; how its queries are cut into heads changes no name.
void FillLayer(const draft::HeadsFile& file, model::ModelConfig& config) {
  int64_t queries = SizeIn(file, Size::kQueryRows), keys = SizeIn(file, Size::kKeyRows);
  int64_t inner = SizeIn(file, Size::kInnerSize);
  for (const HeadTensor& tensor : file.info.rows->tensors) {
    if (tensor.form != Form::kDecoderLayer) continue;
    const std::string prefix = tensor.name;
    queries = RowsIn(file, prefix + "self_attn.q_proj.weight");
    keys = RowsIn(file, prefix + "self_attn.k_proj.weight");
    inner = RowsIn(file, prefix + "mlp.gate_proj.weight");
  }
  if (queries == 0 && keys == 0) return;
  config.intermediate_size = std::max<int64_t>(1, inner);
  config.head_dim = std::max<int64_t>(1, std::gcd(queries, keys));
  if (file.info.num_kv_heads > 0 && keys >= file.info.num_kv_heads) config.head_dim = keys / file.info.num_kv_heads;
  config.num_heads = std::max<int64_t>(1, queries / config.head_dim);
  config.num_kv_heads = std::max<int64_t>(1, keys / config.head_dim);
}

// --- The tensors ---

bool SameBytes(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape &&
         (a.data == b.data || std::memcmp(a.data, b.data, a.num_bytes()) == 0);
}

TensorView Zeros(DType dtype, int64_t count) {
  TensorView view;
  view.dtype = dtype;
  view.shape = {count};
  const std::shared_ptr<uint8_t[]> memory(new uint8_t[view.num_bytes()]());
  view.data = memory.get();
  view.owner = memory;
  return view;
}

class Respeller {
 public:
  Respeller(draft::HeadWeights& heads, const model::ModelWeights& base, const Respelling& to)
      : heads_(heads), base_(base), to_(to) {
    result_.info = heads.info;
    result_.info.rows = to.rows;
    result_.info.layout = to.rows->name;
    const bool has_map = !heads.token_map.empty();
    draft_rows_ = has_map ? static_cast<int64_t>(heads.token_map.size()) : base.config.vocab_size;
  }

  RespelledHeads Run() {
    RefusePacked();
    PlaceLmHeads();
    PlaceTokenMap();
    for (const HeadPlace& place : heads_.Places()) Add(place);
    AddRest();
    return std::move(result_);
  }

 private:
  const draft::HeadsInfo& from() const { return heads_.info; }
  const StoredTensor* Find(const std::string& name) const { return heads_.tensors->Find(name); }
  [[noreturn]] void Refuse(const std::string& problem, const std::string& hint) const {
    throw FileError(to_.file, problem, hint);
  }
  void Add(std::string name, const TensorView& view, ShardAxis axis) {
    if (names_.insert(name).second) result_.tensors.push_back({std::move(name), view, axis});
  }

  void RefusePacked() const {
    for (const std::string& name : heads_.used_tensors) {
      const StoredTensor* tensor = Find(name);
      if (tensor == nullptr || !tensor->packed) continue;
      throw FileError(
          tensor->file,
          "tensor '" + name + "' is packed in " + tensor->packed->format + ", expected floats for layout " + to_.layout,
          "name the folder that it was converted from");
    }
  }

  // Heads without lm heads of their own stay so where the layout allows it, and else get the base's.
  void PlaceLmHeads() {
    const bool has_own = from().own_lm_heads || from().shared_lm_head;
    result_.info.shared_lm_head = false;
    if (!has_own && to_.rows->may_lack_lm_heads) return;
    if (!has_own && base_.lm_head.weight.empty()) {
      Refuse("holds no lm heads (logits go through the base's), expected some for layout " + to_.layout,
             "name the base with RespellOptions::model as floats, and its lm head is written");
    }
    const bool is_shared = !has_own || from().shared_lm_head;
    result_.info.shared_lm_head = is_shared && to_.rows->Find(draft::kSharedLmHead) != nullptr;
    result_.info.own_lm_heads = !result_.info.shared_lm_head;
  }

  void PlaceTokenMap() {
    if (!from().has_token_map) return;
    const std::string name = draft::NameOf(from(), draft::kTokenMap, 0, 0);
    if (to_.rows->Find(draft::kTokenMap) == nullptr) {
      Refuse("holds '" + name + "' (rows of the lm heads are not the tokens of the same numbers), and layout " +
                 to_.layout + " has no place for it",
             "layout vllm has one");
    }
    Add(draft::NameOf(result_.info, draft::kTokenMap, 0, 0), Find(name)->view, ShardAxis::kReplicated);
  }

  void Add(const HeadPlace& place) {
    HeadPlace target = place;
    const bool is_lm_head = place.role == draft::kLmHead || place.role == draft::kSharedLmHead;
    if (is_lm_head) {
      if (!result_.info.own_lm_heads && !result_.info.shared_lm_head) return;
      target.role = result_.info.shared_lm_head ? draft::kSharedLmHead : draft::kLmHead;
    }
    const std::vector<TensorRow> to = draft::RowsOf(target, result_.info, base_.config, draft_rows_);
    if (is_lm_head && !from().own_lm_heads && !from().shared_lm_head) {
      Add(to.front().name, base_.lm_head.weight, to.front().shard);
      return;
    }
    const std::vector<TensorRow> of = draft::RowsOf(place, from(), base_.config, draft_rows_);
    for (size_t i = 0; i < of.size(); ++i) {
      const std::optional<TensorView> view = Read(of[i]);
      if (i < to.size()) {
        AddRow(to[i], view, of.front());
      } else if (view) {
        Refuse("holds tensor '" + of[i].name + "', and layout " + to_.layout + " has no place for a bias there",
               "leave the heads in their layout");
      }
    }
  }

  // A name that is absent, or whose bytes are those of the block that it repeats, is that block.
  std::optional<TensorView> Read(const TensorRow& row) const {
    const StoredTensor* stored = row.presence == Presence::kUnused ? nullptr : Find(row.name);
    const StoredTensor* tied = row.tied_to.empty() ? nullptr : Find(row.tied_to);
    if (tied != nullptr && (stored == nullptr || SameBytes(stored->view, tied->view))) return tied->view;
    return stored == nullptr ? std::nullopt : std::optional(stored->view);
  }

  void AddRow(const TensorRow& row, const std::optional<TensorView>& view, const TensorRow& weight) {
    if (view) {
      Add(row.name, *view, row.shard);
    } else if (row.presence == Presence::kRequired) {
      AddZeroBias(row, *Read(weight));
    }
  }

  // Layouts whose blocks always have biases take blocks without them: the sums stay the same.
  void AddZeroBias(const TensorRow& row, const TensorView& weight) {
    if (result_.warnings.empty()) {
      result_.warnings.push_back(to_.file + ": the blocks have no biases, and layout " + to_.layout +
                                 " calls for some: zeros are written");
    }
    Add(row.name, Zeros(weight.dtype, weight.shape.front()), row.shard);
  }

  // What nothing reads stays in files of the same spelling, and is left out of others.
  void AddRest() {
    const std::set<std::string> used(heads_.used_tensors.begin(), heads_.used_tensors.end());
    for (const auto& [name, tensor] : heads_.tensors->tensors()) {
      if (used.contains(name)) continue;
      if (to_.rows == from().rows && from().rows->is_alone) {
        Add(name, tensor.view, ShardAxis::kReplicated);
      } else if (from().rows->is_alone || checkpoint::IsHeadTensor(name)) {
        if (!names_.contains(name)) result_.left_out.push_back(name);
      }
    }
  }

  draft::HeadWeights& heads_;
  const model::ModelWeights& base_;
  const Respelling& to_;
  int64_t draft_rows_ = 0;
  RespelledHeads result_;
  std::set<std::string> names_;
};

}  // namespace

model::ModelWeights BaseBySizes(const draft::HeadsFile& file) {
  model::ModelWeights base;
  base.config.file = file.info.config_file.empty() ? file.info.weights_file : file.info.config_file;
  base.config.hidden_size = HiddenSize(file);
  if (base.config.hidden_size == 0) {
    const bool has_config = !file.info.config_file.empty();
    throw FileError(file.info.weights_file, "holds no block of head 0, expected one (it tells hidden_size)",
                    has_config ? "" : "put the config.json that was published with the heads into the same folder");
  }
  base.config.vocab_size = VocabSize(file);
  base.config.num_heads = base.config.num_kv_heads = base.config.head_dim = 1;
  FillLayer(file, base.config);
  return base;
}

RespelledHeads Respell(draft::HeadWeights& heads, const model::ModelWeights& base, const Respelling& to) {
  return Respeller(heads, base, to).Run();
}

}  // namespace hydrant::convert
