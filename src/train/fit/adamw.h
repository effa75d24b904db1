// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, arXiv 1711.05101) in one pass over flat arrays. PyTorch's own takes a dozen passes, and
// its state is spread over tensors; this one's is two arrays, which a checkpoint writes as they are.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "train/fit/parameters.h"

namespace hydrant::train {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

class AdamW {
 public:
  AdamW(const AdamWOptions& options, int64_t size);

  // Changes the values by their gradients, and sets these to zero. Step t is the t-th call, from 1.
  void Step(Parameters& parameters, double rate, int64_t t);

  at::Tensor& mean() { return mean_; }          // [P], of gradients
  at::Tensor& variance() { return variance_; }  // [P], of their squares

 private:
  AdamWOptions options_;
  at::Tensor mean_, variance_;
};

double GradientNorm(const Parameters& parameters);
// Scales gradients of that norm down where it is larger. 0: never.
void ClipGradients(Parameters& parameters, double norm, double largest);

}  // namespace hydrant::train
