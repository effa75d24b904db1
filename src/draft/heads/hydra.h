// SPDX-License-Identifier: Apache-2.0
// Sequentially dependent heads: Hydra (mlp) and Hydra++ (prefix-mlp). Head i sees the hidden state and the embeddings
// of the root and of the i tokens drafted after it, so every node's children depend on that node's own path.
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/heads/hydra_weights.h"

namespace hydrant::draft {

std::unique_ptr<Drafter> MakeHydra(HydraWeights weights, const model::ModelWeights& base, kernels::Queue* queue);

}  // namespace hydrant::draft
