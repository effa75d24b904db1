// SPDX-License-Identifier: Apache-2.0
// For tests: what a training run has kept.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace hydrant::test {

// A tensor of the checkpoint of the run in `out`: "medusa.values".
inline std::vector<float> Kept(const std::string& out, const std::string& name) {
  const auto source = checkpoint::OpenTensorFile(out + "/training/checkpoint.safetensors");
  const TensorView& view = source->Find(name)->view;
  const auto* numbers = reinterpret_cast<const float*>(view.data);
  return {numbers, numbers + view.shape[0]};
}

inline double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

}  // namespace hydrant::test
