// SPDX-License-Identifier: Apache-2.0
#include "train/head_rows.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/check.h"
#include "draft/heads/eagle_weights.h"
#include "draft/heads/head_stack.h"
#include "draft/heads/medusa_weights.h"
#include "draft/heads/redrafter_weights.h"
#include "hydrant/error.h"

namespace hydrant::train {
namespace {

constexpr int32_t kMostHeads = 64, kMostLayers = 16;

const draft::PublishedHeads* Find(std::string_view arch) {
  for (const draft::HeadKind* kind : draft::HeadKinds()) {
    for (const draft::PublishedHeads& heads : kind->published) {
      if (arch == heads.name) return &heads;
    }
  }
  return nullptr;
}

void CheckCount(const char* what, int64_t count, int64_t least, int64_t most) {
  if (count >= least && count <= most) return;
  throw UserError(std::string(what) + " is " + std::to_string(count) + ", expected " + std::to_string(least) + " to " +
                  std::to_string(most));
}

// The rows of a place under the names that the file has for it.
std::vector<checkpoint::TensorRow> RowsAt(const draft::HeadPlace& place, const draft::HeadsInfo& info,
                                          const model::ModelConfig& base, int64_t draft_rows) {
  std::vector<checkpoint::TensorRow> rows = draft::RowsOf(place, info, base, draft_rows);
  // EAGLE-1's fc has a bias as its authors make it.
  const bool has_all = info.kind == &draft::kEagleKind && place.role == draft::kEagleFc && info.name == "eagle";
  std::erase_if(rows, [&](const checkpoint::TensorRow& row) {
    return row.presence != checkpoint::Presence::kRequired && !has_all;
  });
  return rows;
}

// EAGLE's layer: of the base's sizes, without what its authors' code does not have.
void DescribeLayer(const model::ModelConfig& base, draft::HeadsInfo& info) {
  model::ModelConfig layer = base;
  layer.num_layers = 1;
  layer.qkv_bias = layer.o_bias = layer.mlp_bias = layer.qk_norm = false;
  layer.sliding_window = 0;
  info.layer = std::make_shared<const model::ModelConfig>(std::move(layer));
  info.block_bias = false;
  // Small bases have too few layers for the authors' rule (2, L / 2, L - 3).
  const int64_t layers = base.num_layers;
  info.hidden_layers = {2, layers / 2, layers - 3};
  if (layers < 7) info.hidden_layers = {0, layers / 2, layers - 1};
  info.hidden_layer_reading = draft::LayerReading::kInputs;
}

// How the file says which tokens the lm heads draft. The layout of Medusa's authors cannot: it has no biases.
void DescribePruned(const std::string& arch, draft::HeadsInfo& info) {
  if (arch == "eagle" || arch == "redrafter") {
    throw UserError("HeadShape::draft_vocab is for medusa, hydra, hydra++ and eagle3, and " + arch + " has all tokens",
                    "it drafts fewer tokens by EngineOptions::draft_vocab, without training");
  }
  if (info.kind == &draft::kMedusaKind) info.rows = draft::Respelled(draft::kMedusaKind, *info.rows, "vllm");
  info.layout = info.rows->name;
  info.has_token_map = info.rows->Find(draft::kTokenMap) != nullptr;
}

}  // namespace

std::vector<std::string_view> ArchNames() { return {"medusa", "hydra", "hydra++", "eagle", "eagle3", "redrafter"}; }

bool GoesTokenByToken(std::string_view arch) { return arch == "eagle" || arch == "eagle3" || arch == "redrafter"; }

draft::HeadsInfo DescribeHeads(const HeadShape& shape, const model::ModelConfig& base) {
  const std::vector<std::string_view> names = ArchNames();
  if (std::ranges::find(names, shape.arch) == names.end()) {
    std::string list;
    for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
    throw UserError("HeadShape::arch is '" + shape.arch + "', expected one of " + list);
  }
  draft::HeadsInfo info = Find(shape.arch)->info();
  if (GoesTokenByToken(shape.arch)) {
    const bool has_layers = shape.arch == "redrafter";
    if (shape.num_heads > 0)
      throw UserError("HeadShape::num_heads is for heads that are counted, and " + shape.arch + " has one network");
    if (shape.num_layers > 0 && !has_layers) throw UserError("HeadShape::num_layers is 1 for " + shape.arch);
    if (shape.hidden_layer_offset > 0) throw UserError("HeadShape::hidden_layer_offset is not for " + shape.arch);
  }
  if (shape.num_heads > 0) info.num_heads = shape.num_heads;
  if (shape.num_layers > 0) info.num_layers = shape.num_layers;
  CheckCount("HeadShape::num_heads", info.num_heads, 1, kMostHeads);
  CheckCount("HeadShape::num_layers", info.num_layers, 1, kMostLayers);
  CheckCount("HeadShape::hidden_layer_offset", shape.hidden_layer_offset, 0, base.num_layers);
  if (info.kind == &draft::kMedusaKind && shape.hidden_layer_offset > 0) {
    throw UserError("HeadShape::hidden_layer_offset is for hydra and hydra++: the files of medusa cannot say it");
  }
  info.layout = info.rows->name;
  info.hidden_layer_offset = shape.hidden_layer_offset;
  // The input block of a Hydra head is never tied: it has more inputs.
  info.tied_blocks = shape.tied_blocks && info.num_layers > (info.sequentially_dependent ? 2 : 1);
  info.rope_theta = base.rope.theta;
  info.base_model = base.name_or_path;
  if (info.kind == &draft::kEagleKind) DescribeLayer(base, info);
  if (!shape.draft_vocab.empty()) DescribePruned(shape.arch, info);
  if (shape.shared_lm_head && info.num_heads == 1) {
    throw UserError("HeadShape::shared_lm_head is for several heads, and there is one");
  }
  return info;
}

std::vector<int32_t> WantedLayers(const draft::HeadsInfo& info, const model::ModelConfig& base) {
  if (info.kind == &draft::kRedrafterKind) return {model::kAfterFinalNorm};
  if (info.kind != &draft::kEagleKind) return {draft::WantedLayer(info, base)};
  draft::HeadsFile file;
  file.info = info;
  const std::unique_ptr<draft::HeadWeights> weights = info.kind->make(file, base);
  return static_cast<const draft::EagleWeights&>(*weights).hidden_layers;
}

int64_t ParameterRow::num_elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<ParameterRow> RowsToTrain(const draft::HeadsInfo& info, const model::ModelConfig& base,
                                      const HeadShape& shape) {
  const auto num_drafted = static_cast<int64_t>(shape.draft_vocab.size());
  const int64_t draft_rows = num_drafted > 0 ? num_drafted : base.vocab_size;
  draft::HeadsFile file;
  file.info = info;
  const std::unique_ptr<draft::HeadWeights> weights = info.kind->make(file, base);
  std::vector<ParameterRow> parameters;
  std::map<const model::Linear*, size_t> first_row;  // of the places that others may be tied to
  size_t first_lm_head = 0;                          // likewise
  for (const draft::HeadPlace& place : weights->Places()) {
    if (info.rows->Find(place.role) == nullptr) continue;  // the base's lm head
    const std::vector<checkpoint::TensorRow> rows = RowsAt(place, info, base, draft_rows);
    const bool is_same_lm_head = shape.shared_lm_head && place.role == draft::kLmHead && place.head > 0;
    if (is_same_lm_head || (place.tied_to != nullptr && info.tied_blocks)) {
      size_t row = is_same_lm_head ? first_lm_head : first_row.at(place.tied_to);
      for (const checkpoint::TensorRow& repeated : rows) parameters[row++].repeats.push_back(repeated.name);
      continue;
    }
    if (place.linear != nullptr) first_row.emplace(place.linear, parameters.size());
    if (place.role == draft::kLmHead && place.head == 0) first_lm_head = parameters.size();
    for (const checkpoint::TensorRow& row : rows) {
      ParameterRow parameter{.name = row.name, .shape = {}};
      for (const checkpoint::Extent& extent : row.shape) parameter.shape.push_back(extent.value);
      parameters.push_back(std::move(parameter));
    }
  }
  return parameters;
}

}  // namespace hydrant::train
