// SPDX-License-Identifier: Apache-2.0
#include "eval/random_heads.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "draft/draft_model.h"

namespace hydrant::eval {
namespace {

using draft::HeadPlace;

constexpr uint64_t kSeed = 2;

// By their order in a step: a prefix layer before the heads.
std::vector<HeadPlace> PlacesByStep(draft::HeadWeights& weights) {
  std::vector<HeadPlace> places = weights.Places();
  std::ranges::stable_partition(places, [](const HeadPlace& place) { return place.head < 0; });
  return places;
}

// Released files repeat tied blocks: only the first of them gets values.
bool IsRepeated(const HeadPlace& place, const draft::HeadsInfo& info) {
  return place.tied_to != nullptr && info.tied_blocks;
}

// Adds the heads' matrices to those that wait for memory, and fills the small tensors at once.
class HeadFiller {
 public:
  HeadFiller(const model::ModelConfig& config, quant::WeightFormat format, int64_t draft_rows)
      : config_(config), format_(format), draft_rows_(draft_rows), random_(kSeed) {}

  void Add(const HeadPlace& place, const draft::HeadsInfo& info) {
    if (place.decoder_layer != nullptr) {
      random_.AddLayer(*place.layer_config, format_, place.decoder_layer);
      return;
    }
    const std::vector<checkpoint::TensorRow> rows = draft::RowsOf(place, info, config_, draft_rows_);
    const auto extent = [&rows](size_t d) { return rows.front().shape[d].value; };
    if (place.vector != nullptr) {
      place.vector->assign(static_cast<size_t>(extent(0)), 1.0F);
      if (place.vector_bias != nullptr) place.vector_bias->assign(static_cast<size_t>(extent(0)), 0.01F);
      return;
    }
    if (place.table != nullptr) random_.AddEmbedding(extent(0), extent(1), place.table);
    const bool has_bias = rows.size() > 1;
    if (place.linear != nullptr) AddLinear(extent(0), extent(1), has_bias, *place.linear);
    if (place.slices == nullptr) return;
    const auto count = static_cast<int64_t>(place.slices->size());
    for (model::Linear& slice : *place.slices) {
      AddLinear(extent(0), extent(1) / count, has_bias && &slice == &place.slices->front(), slice);
    }
  }
  void AddLinear(int64_t outputs, int64_t inputs, bool has_bias, model::Linear& linear) {
    random_.Add(outputs, inputs, format_, &linear);
    if (has_bias) linear.bias.assign(static_cast<size_t>(outputs), 0.01F);
  }
  // For the kernels of `queue`.
  bool Build(const kernels::Queue& queue, const FillProgress& on_progress) { return random_.Build(queue, on_progress); }

 private:
  const model::ModelConfig& config_;
  quant::WeightFormat format_;
  int64_t draft_rows_;
  RandomWeights random_;
};

void Copy(const HeadPlace& from, const HeadPlace& to) {
  if (from.linear != nullptr) *to.linear = *from.linear;
  if (from.slices != nullptr) *to.slices = *from.slices;
  if (from.vector != nullptr) *to.vector = *from.vector;
  if (from.vector_bias != nullptr) *to.vector_bias = *from.vector_bias;
  if (from.table != nullptr) *to.table = *from.table;
  if (from.decoder_layer != nullptr) *to.decoder_layer = *from.decoder_layer;
}

// What the heads come to, a repeated block once.
uint64_t BytesOf(draft::HeadWeights& weights) {
  uint64_t bytes = 0;
  for (const HeadPlace& place : weights.Places()) {
    if (IsRepeated(place, weights.info) || weights.info.rows->Find(place.role) == nullptr) continue;
    if (place.linear != nullptr) bytes += place.linear->bytes();
    if (place.table != nullptr) bytes += place.table->num_bytes();
    if (place.slices != nullptr) {
      for (const model::Linear& slice : *place.slices) bytes += slice.bytes();
    }
    if (place.decoder_layer != nullptr) bytes += static_cast<uint64_t>(BytesRead(*place.decoder_layer));
  }
  return bytes;
}

using Drafters = std::vector<std::unique_ptr<draft::Drafter>>;
using Queues = std::span<kernels::Queue* const>;

Drafters MakeHeads(const draft::HeadsInfo& info, const RandomDrafter& what, const model::ModelWeights& base,
                   Queues queues, const FillProgress& on_progress) {
  draft::HeadsFile file;
  file.info = info;
  const auto make = [&] { return info.kind->make(file, base.config); };
  const int64_t all = base.config.vocab_size;
  const int64_t draft_rows = what.draft_vocab > 0 ? std::min(what.draft_vocab, all) : all;
  const std::unique_ptr<draft::HeadWeights> first = make();
  for (int32_t token = 0; what.draft_vocab > 0 && token < draft_rows; ++token) first->token_map.push_back(token);
  HeadFiller filler(base.config, what.format, draft_rows);
  for (const HeadPlace& place : PlacesByStep(*first)) {
    if (IsRepeated(place, info)) continue;
    if (info.rows->Find(place.role) != nullptr) {
      filler.Add(place, info);
    } else if (what.draft_vocab > 0) {  // heads that use the base's lm head get a smaller one of their own
      filler.AddLinear(draft_rows, base.config.hidden_size, false, *place.linear);
    } else {
      *place.linear = base.lm_head;
    }
  }
  Drafters drafters;
  if (!filler.Build(*queues.front(), on_progress)) return drafters;
  for (const HeadPlace& place : first->Places()) {
    if (IsRepeated(place, info)) *place.linear = *place.tied_to;
  }
  const std::vector<HeadPlace> places = first->Places();
  for (kernels::Queue* queue : queues) {
    const std::unique_ptr<draft::HeadWeights> weights = make();
    const std::vector<HeadPlace> own = weights->Places();
    for (size_t p = 0; p < places.size(); ++p) Copy(places[p], own[p]);
    weights->token_map = first->token_map;
    weights->bytes = BytesOf(*first);
    drafters.push_back(weights->IntoDrafter(base, queue));
  }
  return drafters;
}

Drafters MakeModel(std::string_view shape, const RandomDrafter& what, const model::ModelWeights& base, Queues queues,
                   const FillProgress& on_progress) {
  model::ModelConfig config = ShapeConfig(shape);
  config.vocab_size = base.config.vocab_size;
  model::ModelWeights weights;
  Drafters drafters;
  // With the base's own seed a model of its shape would be the base, and always right.
  if (!MakeRandomModel(config, what.format, *queues.front(), on_progress, &weights, kSeed)) return drafters;
  for (kernels::Queue* queue : queues) {
    drafters.push_back(draft::MakeDraftModel(weights, {}, config.vocab_size, queue));
  }
  return drafters;
}

constexpr std::string_view kModel = "model-";

}  // namespace

std::span<const std::string_view> RandomDrafterNames() {
  static constexpr std::array<std::string_view, 2> kModels = {"model-1b", "model-tale"};
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const draft::HeadKind* kind : std::views::reverse(draft::HeadKinds())) {  // the simplest first
      for (const draft::PublishedHeads& heads : kind->published) all.emplace_back(heads.name);
    }
    all.insert(all.end(), kModels.begin(), kModels.end());
    return all;
  }();
  return names;
}

std::string RandomDrafterList() {
  std::string list;
  for (const std::string_view name : RandomDrafterNames()) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

std::optional<draft::HeadsInfo> PublishedHeads(std::string_view name) {
  for (const draft::HeadKind* kind : draft::HeadKinds()) {
    for (const draft::PublishedHeads& heads : kind->published) {
      if (name == heads.name) return heads.info();
    }
  }
  return std::nullopt;
}

Drafters MakeRandomDrafters(const RandomDrafter& what, const model::ModelWeights& base, Queues queues,
                            const FillProgress& on_progress) {
  const std::string_view name = what.name;
  if (name.starts_with(kModel)) return MakeModel(name.substr(kModel.size()), what, base, queues, on_progress);
  const std::optional<draft::HeadsInfo> info = PublishedHeads(name);
  HYDRANT_CHECK(info.has_value());
  return MakeHeads(*info, what, base, queues, on_progress);
}

}  // namespace hydrant::eval
