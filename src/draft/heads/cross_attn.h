// SPDX-License-Identifier: Apache-2.0
// Hydra's cross-attn heads: one layer whose queries are tokens and whose keys and values are hidden states.
// docs/algorithms/hydra_heads.md
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/heads/cross_attn_weights.h"

namespace hydrant::draft {

// `base` and `queue` must outlive the drafter.
std::unique_ptr<Drafter> MakeCrossAttn(CrossAttnWeights weights, const model::ModelWeights& base,
                                       kernels::Queue* queue);

}  // namespace hydrant::draft
