// SPDX-License-Identifier: Apache-2.0
#include "eval/random_heads.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

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
  // For the kernels of `queue`.
  bool Build(const kernels::Queue& queue, const FillProgress& on_progress) { return random_.Build(queue, on_progress); }

 private:
  void AddLinear(int64_t outputs, int64_t inputs, bool has_bias, model::Linear& linear) {
    random_.Add(outputs, inputs, format_, &linear);
    if (has_bias) linear.bias.assign(static_cast<size_t>(outputs), 0.01F);
  }

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
    if (IsRepeated(place, weights.info)) continue;
    if (place.linear != nullptr) bytes += place.linear->bytes();
    if (place.table != nullptr) bytes += place.table->num_bytes();
    if (place.slices != nullptr) {
      for (const model::Linear& slice : *place.slices) bytes += slice.bytes();
    }
    if (place.decoder_layer != nullptr) bytes += static_cast<uint64_t>(BytesRead(*place.decoder_layer));
  }
  return bytes;
}

}  // namespace

std::span<const std::string_view> PublishedHeadsNames() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const draft::HeadKind* kind : std::views::reverse(draft::HeadKinds())) {  // the simplest first
      for (const draft::PublishedHeads& heads : kind->published) all.emplace_back(heads.name);
    }
    return all;
  }();
  return names;
}

draft::HeadsInfo PublishedHeadsInfo(std::string_view name) {
  draft::HeadsInfo (*info)() = nullptr;
  for (const draft::HeadKind* kind : draft::HeadKinds()) {
    for (const draft::PublishedHeads& heads : kind->published) {
      if (name == heads.name) info = heads.info;
    }
  }
  HYDRANT_CHECK(info != nullptr);
  return info();
}

std::vector<std::unique_ptr<draft::Drafter>> MakeRandomHeads(const draft::HeadsInfo& info,
                                                             const model::ModelWeights& base,
                                                             quant::WeightFormat format, int64_t draft_vocab,
                                                             std::span<kernels::Queue* const> queues,
                                                             const FillProgress& on_progress) {
  draft::HeadsFile file;
  file.info = info;
  const auto make = [&] { return info.kind->make(file, base.config); };
  const int64_t all = base.config.vocab_size;
  const int64_t draft_rows = draft_vocab > 0 ? std::min(draft_vocab, all) : all;
  const std::unique_ptr<draft::HeadWeights> first = make();
  for (int32_t token = 0; draft_vocab > 0 && token < draft_rows; ++token) first->token_map.push_back(token);
  HeadFiller filler(base.config, format, draft_rows);
  for (const HeadPlace& place : PlacesByStep(*first)) {
    if (!IsRepeated(place, info)) filler.Add(place, info);
  }
  std::vector<std::unique_ptr<draft::Drafter>> drafters;
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

}  // namespace hydrant::eval
