// SPDX-License-Identifier: Apache-2.0
// What is known of a base before and between its steps: the loss on held-out text, and the memory that training takes.
#pragma once

#include <cstdint>
#include <functional>

#include "train/fit/base/base_fit.h"
#include "train/run_data.h"

namespace hydrant::train {

// The mean loss over a run's held-out segments, `rows` at a time. `progress` may throw.
BaseFigures MeasureHeldOut(const BaseFit& fit, const RunData& run, int32_t rows,
                           const std::function<void(double share)>& progress);

// Throws UserError where parameters, gradients and the optimizer's moments are more than the memory that is free.
void CheckTrainingMemory(const model::ModelConfig& config);

}  // namespace hydrant::train
