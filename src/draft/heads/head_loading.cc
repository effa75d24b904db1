// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "checkpoint/head_names.h"
#include "draft/heads/base_copies.h"
#include "draft/heads/head_kind.h"
#include "hydrant/error.h"

namespace hydrant::draft {
namespace {

using checkpoint::TableLoader;
using checkpoint::TensorRow;

bool SameBytes(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  return a.data == b.data || std::memcmp(a.data, b.data, a.num_bytes()) == 0;
}

int64_t TokenAt(const TensorView& view, size_t index) {
  if (view.dtype == DType::kI64) {
    int64_t id = 0;
    std::memcpy(&id, view.data + 8 * index, 8);
    return id;
  }
  int32_t id = 0;
  std::memcpy(&id, view.data + 4 * index, 4);
  return id;
}

// Reads an i64 (or i32) token map and checks that every id is a token and appears once. `are_offsets`: id j is stored
// as its distance from j.
std::vector<int32_t> ReadTokenMap(const checkpoint::TensorSource& tensors, const std::string& name, int64_t vocab_size,
                                  bool are_offsets) {
  const checkpoint::StoredTensor* stored = tensors.Find(name);
  HYDRANT_CHECK(stored != nullptr);
  const TensorView& view = stored->view;
  if ((view.dtype != DType::kI64 && view.dtype != DType::kI32) || view.shape.size() != 1 || view.shape[0] < 1 ||
      view.shape[0] > vocab_size) {
    throw FileError(stored->file, "tensor '" + name + "' is " + NameOf(view.dtype) + " " + ShapeString(view.shape) +
                                      ", expected integers [1 .. " + std::to_string(vocab_size) + "] (vocab_size)");
  }
  std::vector<int32_t> map(static_cast<size_t>(view.shape[0]));
  std::vector<bool> seen(static_cast<size_t>(vocab_size), false);
  for (size_t j = 0; j < map.size(); ++j) {
    const int64_t stored_id = TokenAt(view, j);
    // In a file an offset may be any number: one that leaves the vocabulary must not overflow.
    const bool overflows = are_offsets && (stored_id > vocab_size || stored_id < -vocab_size);
    const int64_t id = are_offsets && !overflows ? stored_id + static_cast<int64_t>(j) : stored_id;
    if (overflows || id < 0 || id >= vocab_size || seen[static_cast<size_t>(id)]) {
      throw FileError(stored->file, "tensor '" + name + "' maps row " + std::to_string(j) + " to token " +
                                        std::to_string(id) + ", expected each token of 0 .. " +
                                        std::to_string(vocab_size - 1) + " at most once");
    }
    seen[static_cast<size_t>(id)] = true;
    map[j] = static_cast<int32_t>(id);
  }
  return map;
}

// Fills places from a file.
class HeadReader {
 public:
  HeadReader(const HeadsFile& file, const model::ModelWeights& base)
      : file_(file), base_(base), loader_(*file.tensors, base.config.file), draft_rows_(base.config.vocab_size) {
    // Beside prefixed heads there is a whole model, in its own spelling; a file of heads alone holds nothing unknown.
    const bool alone = file.info.rows->is_alone;
    loader_.IgnoreIf(
        [alone](const std::string& name) { return IsBaseTensor(name) || (!alone && !checkpoint::IsHeadTensor(name)); });
    for (const std::string& name : UnusedNames(file.info)) loader_.Ignore(name);
  }

  void ReadAll(HeadWeights& weights) {
    if (file_.info.has_token_map) {
      const std::string name = draft::NameOf(file_.info, kTokenMap, 0, 0);
      const bool are_offsets = file_.info.rows->Find(kTokenMap)->form == Form::kTokenOffsets;
      weights.token_map = ReadTokenMap(*file_.tensors, name, base_.config.vocab_size, are_offsets);
      draft_rows_ = static_cast<int64_t>(weights.token_map.size());
      loader_.Ignore(name);
    }
    for (const HeadPlace& place : weights.Places()) Read(place);
    for (const auto& [head, blocks] : blocks_) blocks.Check(file_.info.weights_file);
    model::CheckOneKind(slices_, file_.tensors->display_name(), "the first blocks of the heads");
    loader_.Finish(file_.info.name + " heads hold no such tensor");
    weights.bytes = loader_.bytes_taken();
    weights.used_tensors.assign(loader_.used().begin(), loader_.used().end());
    if (file_.info.has_token_map) weights.used_tensors.push_back(draft::NameOf(file_.info, kTokenMap, 0, 0));
  }

 private:
  // The blocks of one head that released files store several times. A block whose name is absent, or whose bytes equal
  // those of the first one, is taken to be the first one, so that its copies are not read.
  struct Blocks {
    std::string absent = {};
    bool differ = false;

    void Check(const std::string& file) const {
      if (!differ || absent.empty()) return;
      throw FileError(file,
                      "tensor '" + absent + "' is missing: the blocks of this head differ, so none stands for another");
    }
  };

  void Read(const HeadPlace& place) {
    const bool is_lm_head = place.role == kLmHead;
    if (is_lm_head && !file_.info.own_lm_heads) {
      *place.linear = base_.lm_head;
      return;
    }
    if (place.decoder_layer != nullptr) {
      const std::string prefix = draft::NameOf(file_.info, place.role, place.head, place.layer);
      *place.decoder_layer = model::TakeLayer(loader_, *place.layer_config, prefix);
      return;
    }
    std::vector<TensorRow> rows = RowsOf(place, file_.info, base_.config, draft_rows_);
    if (place.vector != nullptr) *place.vector = ToFloats(loader_.Take(rows.front()));
    if (place.vector_bias != nullptr) *place.vector_bias = Bias(rows);
    if (place.table != nullptr) *place.table = loader_.Take(rows.front());
    if (place.linear != nullptr) ReadLinear(place, rows);
    if (place.slices != nullptr) ReadSlices(place, rows);
  }

  std::vector<float> Bias(const std::vector<TensorRow>& rows) {
    if (rows.size() < 2) return {};
    const TensorView view = loader_.Take(rows[1]);
    return view.empty() ? std::vector<float>() : ToFloats(view);
  }

  void ReadLinear(const HeadPlace& place, const std::vector<TensorRow>& rows) {
    model::Linear& linear = *place.linear;
    linear = model::TakeLinear(loader_, rows.front());
    linear.bias = Bias(rows);
    if (place.tied_to == nullptr) return;
    Blocks& blocks = blocks_[place.head];
    if (file_.tensors->Find(rows.front().name) == nullptr && blocks.absent.empty()) blocks.absent = rows.front().name;
    if (SameBytes(linear.weight, place.tied_to->weight)) linear.weight = place.tied_to->weight;
    blocks.differ = blocks.differ || (!linear.packed && linear.weight.data != place.tied_to->weight.data);
  }

  void ReadSlices(const HeadPlace& place, std::vector<TensorRow>& rows) {
    TensorRow& weight = rows.front();
    const int64_t width = base_.config.hidden_size;
    const checkpoint::StoredTensor* found = file_.tensors->Find(weight.name);
    if (found != nullptr && found->shape() == std::vector<int64_t>{width, width}) {
      weight.hint =
          file_.info.config_file + " says grounded_heads=true; these weights look like heads trained with false";
    }
    *place.slices = model::TakeLinearSlices(loader_, weight, static_cast<int64_t>(place.slices->size()));
    place.slices->front().bias = Bias(rows);
    for (const model::Linear& slice : *place.slices) slices_.push_back(&slice);
  }

  const HeadsFile& file_;
  const model::ModelWeights& base_;
  TableLoader loader_;
  int64_t draft_rows_;
  std::map<int32_t, Blocks> blocks_;  // by head
  std::vector<const model::Linear*> slices_;
};

}  // namespace

std::unique_ptr<HeadWeights> LoadHeads(HeadsFile file, const model::ModelWeights& base) {
  std::unique_ptr<HeadWeights> weights = file.info.kind->make(file, base.config);
  weights->info = file.info;
  HeadReader(file, base).ReadAll(*weights);
  weights->tensors = std::move(file.tensors);
  return weights;
}

}  // namespace hydrant::draft
