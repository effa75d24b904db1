// SPDX-License-Identifier: Apache-2.0
// ReDrafter heads: a small recurrent network that drafts from the base model's last hidden state and the tokens drafted
// so far (Cheng et al., 2024, arXiv 2403.09919). docs/algorithms/redrafter.md
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/heads/redrafter_weights.h"

namespace hydrant::draft {

// `base` and `queue` must outlive the drafter.
std::unique_ptr<Drafter> MakeRedrafter(RedrafterWeights weights, const model::ModelWeights& base,
                                       kernels::Queue* queue);

}  // namespace hydrant::draft
