// SPDX-License-Identifier: Apache-2.0
// The heads' part of a loss that their base learns from, too.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "train/fit/batch_tensors.h"
#include "train/fit/head_fit.h"

namespace hydrant::train {

// What HeadFit::AddGradient is told besides the batch.
struct HeadsPlace {
  int64_t step = 0;
  std::vector<double> counts;  // of labels
  bool with_agreement = false;
};

// Adds the heads' gradient over hidden states of their base: what the heads read, and last the states after the final
// norm. Returns `weight` times the gradients of all states but the last. What Hydra heads read of the base's embeddings
// is no part of it: the base learns those by its own loss.
std::vector<at::Tensor> AddHeadsGradient(HeadFit& heads, const std::vector<at::Tensor>& states, BatchTensors batch,
                                         const HeadsPlace& place, double weight);

}  // namespace hydrant::train
