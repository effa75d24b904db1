// SPDX-License-Identifier: Apache-2.0
// EAGLE heads: one decoder layer that goes on from the base model's hidden states by its own (Li et al., 2024 and
// 2025). docs/algorithms/eagle_heads.md
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/heads/eagle_weights.h"

namespace hydrant::draft {

// `base` and `queue` must outlive the drafter.
std::unique_ptr<Drafter> MakeEagle(EagleWeights weights, const model::ModelWeights& base, kernels::Queue* queue);

}  // namespace hydrant::draft
