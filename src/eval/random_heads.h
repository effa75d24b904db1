// SPDX-License-Identifier: Apache-2.0
// Draft heads of a known kind with random weights, for any base: what drafting costs needs no download.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "draft/heads/head_kind.h"
#include "eval/random_weights.h"
#include "kernels/ops/queue.h"
#include "model/weights.h"
#include "quant/packed_weight.h"

namespace hydrant::eval {

// Names of heads as their papers publish them: "medusa" (4 heads of 1 layer), "hydra" (4 of 1), "hydra++" (4 of 4,
// tied, and a prefix layer).
std::span<const std::string_view> PublishedHeadsNames();
draft::HeadsInfo PublishedHeadsInfo(std::string_view name);

// The shapes of a kind's rows, filled. One drafter for each queue, over the same weights. `base` and the queues must
// outlive them. None when stopped. `draft_vocab`: outputs of the lm heads; 0: one for each token.
std::vector<std::unique_ptr<draft::Drafter>> MakeRandomHeads(const draft::HeadsInfo& info,
                                                             const model::ModelWeights& base,
                                                             quant::WeightFormat format, int64_t draft_vocab,
                                                             std::span<kernels::Queue* const> queues,
                                                             const FillProgress& on_progress);

}  // namespace hydrant::eval
