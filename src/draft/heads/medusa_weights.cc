// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/medusa_weights.h"

#include <array>
#include <string>
#include <utility>

#include "base/json.h"
#include "draft/heads/medusa.h"

namespace hydrant::draft {
namespace {

using checkpoint::ShardAxis;

constexpr HeadTensor Block(const char* name, Bias bias) {
  return {.role = kBlock,
          .name = name,
          .outputs = Size::kHiddenSize,
          .inputs = Size::kHiddenSize,
          .bias = bias,
          .shard = ShardAxis::kOutputs};
}

constexpr HeadTensor LmHead(const char* name, std::string_view role = kLmHead) {
  return {.role = role,
          .name = name,
          .outputs = Size::kDraftRows,
          .inputs = Size::kHiddenSize,
          .shard = ShardAxis::kVocabulary};
}

// The second number of an lm head, where it has one, is the number of layers before it.
constexpr HeadTensor kPlain[] = {Block("#.#.linear", Bias::kRequired), LmHead("#.#")};
constexpr HeadTensor kPrefixed[] = {Block("medusa_head.#.#.linear", Bias::kRequired), LmHead("medusa_head.#.#")};
constexpr HeadTensor kVllm[] = {Block("blocks.#.layers.#", Bias::kOptional),
                                LmHead("lm_heads.#"),
                                LmHead("lm_head", kSharedLmHead),
                                {.role = kTokenMap, .name = "token_map", .form = Form::kTokenMap}};
constexpr HeadTensor kVllmPrefixed[] = {Block("medusa_heads.blocks.#.layers.#", Bias::kOptional),
                                        LmHead("medusa_heads.lm_heads.#"),
                                        LmHead("medusa_heads.lm_head", kSharedLmHead),
                                        {.role = kTokenMap, .name = "medusa_heads.token_map", .form = Form::kTokenMap}};
constexpr HeadTensor kModelOpt[] = {Block("medusa_heads.#.medusa_layers.#.linear", Bias::kRequired),
                                    LmHead("medusa_heads.#.lm_head")};
constexpr HeadTensor kAdapter[] = {Block("base_model.model.medusa_head.#.#.linear", Bias::kRequired),
                                   LmHead("base_model.model.medusa_head.#.#")};

// How one tool each writes Medusa heads (docs/formats.md).
constexpr std::array<HeadLayout, 6> kLayouts{{
    {.name = "a", .tensors = kPlain, .spelling = "medusa-a", .may_lack_lm_heads = true},
    {.name = "b", .tensors = kPrefixed, .is_alone = false, .spelling = "medusa-b"},
    {.name = "d", .tensors = kVllm, .is_alone = false, .spelling = "vllm"},
    {.name = "d", .tensors = kVllmPrefixed, .is_alone = false},
    {.name = "e", .tensors = kModelOpt, .is_alone = false, .spelling = kRankSpelling},
    {.name = "f", .tensors = kAdapter, .is_alone = false},
}};

void FillInfo(const checkpoint::TensorSource& tensors, const HeadLayout& layout, const HeadCounts& counts,
              HeadsInfo& info) {
  info.name = "medusa";
  info.rows = &layout;
  info.layout = layout.name;
  info.num_heads = counts.heads;
  // In deduplicated files the names of a tied block are missing, but the lm head still has its place in the Sequential.
  info.num_layers = counts.lm_head_place >= 0 ? counts.lm_head_place : counts.max_place + 1;
  info.own_lm_heads = counts.has_lm_head;
  const auto has = [&](std::string_view role, const char* suffix) {
    return layout.Find(role) != nullptr && tensors.Find(NameOf(info, role, 0, 0) + suffix) != nullptr;
  };
  info.shared_lm_head = !counts.has_lm_head && has(kSharedLmHead, ".weight");
  if (info.layout == "a" && !counts.has_lm_head) info.layout = "c";
  info.block_bias = layout.Find(kBlock)->bias == Bias::kRequired || has(kBlock, ".bias");
  info.has_token_map = has(kTokenMap, "");
}

bool Resolve(const checkpoint::TensorSource& tensors, const base::JsonView* config, HeadsInfo& info) {
  for (const HeadLayout& layout : kLayouts) {
    const HeadCounts counts = CountHeads(tensors, layout);
    if (counts.heads == 0 || counts.max_place < 0) continue;
    FillInfo(tensors, layout, counts, info);
    if (config == nullptr) return true;
    for (const char* key : {"medusa_num_heads", "num_medusa_heads"}) {
      WarnIfDifferent(*config, key, info.num_heads, info);
    }
    for (const char* key : {"medusa_num_layers", "num_medusa_layers"}) {
      WarnIfDifferent(*config, key, info.num_layers, info);
    }
    return true;
  }
  return false;
}

std::unique_ptr<HeadWeights> Make(const HeadsFile& file, const model::ModelConfig& /*base*/) {
  return std::make_unique<MedusaWeights>(file.info);
}

HeadsInfo AsPublished() {
  HeadsInfo info;
  info.kind = &kMedusaKind;
  info.rows = &kLayouts.front();
  info.name = "medusa";
  info.num_heads = 4;
  info.num_layers = 1;
  return info;
}

constexpr PublishedHeads kPublished[] = {{"medusa", AsPublished}};

}  // namespace

constinit const HeadKind kMedusaKind = {.name = "medusa",
                                        .config_key = nullptr,
                                        .layout_word = "layout",
                                        .layouts = kLayouts,
                                        .resolve = Resolve,
                                        .check_config = nullptr,
                                        .make = Make,
                                        .published = kPublished};

MedusaWeights::MedusaWeights(const HeadsInfo& heads_info) : heads(static_cast<size_t>(heads_info.num_heads)) {
  info = heads_info;
  for (Head& head : heads) head.blocks.resize(static_cast<size_t>(info.num_layers));
}

std::vector<HeadPlace> MedusaWeights::Places() {
  std::vector<HeadPlace> places;
  for (size_t h = 0; h < heads.size(); ++h) AddPlaces(heads[h], info, static_cast<int32_t>(h), 0, places);
  return places;
}

std::unique_ptr<Drafter> MedusaWeights::IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) {
  return MakeIndependentHeads(std::move(*this), base, queue);
}

void AddPlaces(Head& head, const HeadsInfo& info, int32_t number, int32_t first_layer, std::vector<HeadPlace>& places) {
  for (size_t b = 0; b < head.blocks.size(); ++b) {
    places.push_back({.role = kBlock,
                      .head = number,
                      .layer = first_layer + static_cast<int32_t>(b),
                      .linear = &head.blocks[b],
                      .tied_to = b == 0 ? nullptr : &head.blocks.front()});
  }
  places.push_back({.role = info.shared_lm_head ? kSharedLmHead : kLmHead,
                    .head = number,
                    .layer = info.num_layers,
                    .linear = &head.lm_head});
}

}  // namespace hydrant::draft
