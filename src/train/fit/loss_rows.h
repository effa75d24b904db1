// SPDX-License-Identifier: Apache-2.0
// The loss over one row of logits, and its gradient in place of the logits: what a dozen passes of libtorch over
// [labels, V] would make, in two passes over a row that stays in the cache. No header of libtorch in here.
#pragma once

#include <cstdint>
#include <span>

namespace hydrant::train {

// What the row is to predict.
struct RowTarget {
  int64_t label = -1;              // a row of the lm head; -1: none
  const float* teacher = nullptr;  // [V] a distribution; null: none
  double label_weight = 1, teacher_weight = 0;
  double scale = 1;  // of the gradient
};

struct RowLoss {
  double label = 0, teacher = 0;  // cross-entropies, without the weights; 0 without such a target
};

// `logits` [V], of f32 or (as uint16_t) of bf16, becomes the gradient where `with_gradient`; sums are in f32 either
// way. `bias` [V], or null. `scratch`: V numbers.
RowLoss LossOfRow(std::span<float> logits, const float* bias, const RowTarget& target, bool with_gradient,
                  float* scratch);
RowLoss LossOfRow(std::span<uint16_t> logits, const float* bias, const RowTarget& target, bool with_gradient,
                  float* scratch);

}  // namespace hydrant::train
