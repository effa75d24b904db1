// SPDX-License-Identifier: Apache-2.0
// The loss of heads that predict tokens, and its gradient, without ever holding the logits of all positions: labels go
// by in chunks, and each chunk's logits are gone before the next (the idea of fused linear cross-entropy). One chunk
// needs (heads do not matter) 3 * chunk * V floats, whatever the batch.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <vector>

#include "train/fit/batch_tensors.h"
#include "train/fit/networks/network.h"

namespace hydrant::train {

inline constexpr int32_t kTopRanks = 5;

// What the loss is made of: cross-entropy against the text's token, and against the base's own distribution.
struct Objective {
  double label_weight = 1, teacher_weight = 0;
  double head_decay = 1;  // head i counts head_decay^i
  double HeadWeight(int32_t head) const;
};

// Sums over the labels that one head has seen; means are sums / count.
struct HeadSums {
  double count = 0;
  double label_loss = 0, teacher_loss = 0;
  std::array<double, kTopRanks> in_label = {}, in_teacher = {};  // the label, or the base's choice, among the top 1..5
};

struct LossResult {
  std::vector<at::Tensor> state_gradients;  // [K] of [N, D]
  std::vector<HeadSums> heads;              // [K]
  double loss = 0;                          // this batch's part of the weighted loss
};

struct LossOptions {
  Objective objective = {};
  Precision precision = Precision::kF32;
  int64_t chunk = 256;              // labels at once
  std::vector<double> counts = {};  // labels of head i in the whole batch, all ranks; empty: as this batch has
  bool with_gradient = true;
  bool with_agreement = false;  // also count top-k agreement, which costs about a tenth
  int64_t first_shift = 2;      // the state at n of head 0 predicts token n + first_shift; 1: a base's own lm head
};

// Labels that head i has in the batch, 0 .. depth - 1. `first_shift`: LossOptions'.
std::vector<double> CountLabels(const BatchTensors& batch, int32_t depth, int64_t first_shift = 2);

// `states` as Network::States gives them, which `lm_heads` read, one each. Gradients of lm heads are added to theirs at
// once; those of the states come back, for the network's backward pass. `final_hidden` [N, D]: after the base's final
// norm; it and `base_lm_head` may be undefined where no teacher's distribution and no agreement is asked for.
LossResult LmLoss(const std::vector<LmHead>& lm_heads, const std::vector<at::Tensor>& states, const BatchTensors& batch,
                  const at::Tensor& final_hidden, const at::Tensor& base_lm_head, const LossOptions& options);

}  // namespace hydrant::train
