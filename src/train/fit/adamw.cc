// SPDX-License-Identifier: Apache-2.0
#include "train/fit/adamw.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "base/check.h"

namespace hydrant::train {

AdamW::AdamW(const AdamWOptions& options, int64_t size)
    : options_(options), mean_(at::zeros({size})), variance_(at::zeros({size})) {}

void AdamW::Step(Parameters& parameters, double rate, int64_t t) {
  HYDRANT_CHECK(parameters.size() == mean_.numel() && t >= 1);
  float* value = parameters.values().data_ptr<float>();
  float* gradient = parameters.gradients().data_ptr<float>();
  const float* decays = parameters.decays().data_ptr<float>();
  float *mean = mean_.data_ptr<float>(), *variance = variance_.data_ptr<float>();
  const auto beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
  const auto decay = static_cast<float>(rate * options_.weight_decay);
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(t));
  const auto correction2 = static_cast<float>(std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(t))));
  const auto step = static_cast<float>(rate / correction1);
  const auto epsilon = static_cast<float>(options_.epsilon);
  at::parallel_for(0, parameters.size(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = gradient[i];
      mean[i] = beta1 * mean[i] + (1 - beta1) * g;
      variance[i] = beta2 * variance[i] + (1 - beta2) * g * g;
      value[i] -= decay * decays[i] * value[i];
      value[i] -= step * mean[i] / (std::sqrt(variance[i]) / correction2 + epsilon);
      gradient[i] = 0;
    }
  });
}

double GradientNorm(const Parameters& parameters) { return parameters.gradients().norm().item<double>(); }

void ClipGradients(Parameters& parameters, double norm, double largest) {
  if (largest > 0 && norm > largest) parameters.gradients().mul_(largest / norm);
}

}  // namespace hydrant::train
