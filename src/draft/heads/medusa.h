// SPDX-License-Identifier: Apache-2.0
// Heads that see only the base model's hidden state: Medusa, and Hydra's ungrounded MLP. Head i predicts the token
// i + 2 places after the last one whose hidden state is known, whatever was drafted in between, so all nodes of one
// depth share one candidate list. docs/algorithms/hydra_heads.md has the difference in one picture.
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/heads/medusa_weights.h"

namespace hydrant::draft {

std::unique_ptr<Drafter> MakeIndependentHeads(MedusaWeights weights, const model::ModelWeights& base,
                                              kernels::Queue* queue);

}  // namespace hydrant::draft
