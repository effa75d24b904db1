// SPDX-License-Identifier: Apache-2.0
// IBM's MLP speculator: a recurrent network of a few matrices, whose state starts from the base's last hidden state and
// takes in one drafted token after the other (docs/algorithms/mlp_speculator.md).
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/heads/mlp_speculator/mlp_speculator_weights.h"

namespace hydrant::draft {

std::unique_ptr<Drafter> MakeMlpSpeculator(MlpSpeculatorWeights weights, const model::ModelWeights& base,
                                           kernels::Queue* queue);

}  // namespace hydrant::draft
