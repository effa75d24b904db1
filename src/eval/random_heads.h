// SPDX-License-Identifier: Apache-2.0
// Drafters of a known kind with random weights, for any base: what drafting costs needs no download.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "draft/heads/head_kind.h"
#include "eval/random_weights.h"
#include "kernels/ops/queue.h"
#include "model/weights.h"
#include "quant/packed_weight.h"

namespace hydrant::eval {

// What can draft with random weights: heads as their papers publish them (HeadKind::published), the simplest first, and
// "model-SHAPE": a whole model of that shape (ShapeNames), with the base's tokens.
std::span<const std::string_view> RandomDrafterNames();
// "medusa, redrafter, ..", for help texts.
std::string RandomDrafterList();

// The heads of that name; none for a model.
std::optional<draft::HeadsInfo> PublishedHeads(std::string_view name);

struct RandomDrafter {
  std::string name;  // of RandomDrafterNames()
  quant::WeightFormat format = quant::WeightFormat::kW4A8;
  int64_t draft_vocab = 0;  // outputs of the lm heads; 0: one for each token. A model has all
};

// One drafter for each queue, over the same weights. `base` and the queues must outlive them. None when stopped.
std::vector<std::unique_ptr<draft::Drafter>> MakeRandomDrafters(const RandomDrafter& what,
                                                                const model::ModelWeights& base,
                                                                std::span<kernels::Queue* const> queues,
                                                                const FillProgress& on_progress);

}  // namespace hydrant::eval
