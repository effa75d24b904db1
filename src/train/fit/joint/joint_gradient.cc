// SPDX-License-Identifier: Apache-2.0
#include "train/fit/joint/joint_gradient.h"

namespace hydrant::train {

std::vector<at::Tensor> AddHeadsGradient(HeadFit& heads, const std::vector<at::Tensor>& states, BatchTensors batch,
                                         const HeadsPlace& place, double weight) {
  batch.hidden.clear();
  for (size_t i = 0; i + 1 < states.size(); ++i) batch.hidden.push_back(states[i].detach().requires_grad_(true));
  heads.AddGradient(batch, states.back().detach(), place.step, place.counts, place.with_agreement);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& seen : batch.hidden) {
    gradients.push_back(seen.grad().defined() ? seen.grad() * weight : at::zeros_like(seen));
  }
  return gradients;
}

}  // namespace hydrant::train
