// SPDX-License-Identifier: Apache-2.0
#include "train/fit/parameters.h"

#include <utility>

#include "base/check.h"

namespace hydrant::train {

Parameters::Parameters(std::vector<ParameterRow> rows) : rows_(std::move(rows)) {
  int64_t size = 0;
  for (const ParameterRow& row : rows_) size += row.num_elements();
  values_ = at::zeros({size});
  gradients_ = at::zeros({size});
  decays_ = at::zeros({size});
  int64_t begin = 0;
  for (const ParameterRow& row : rows_) {
    const int64_t count = row.num_elements();
    at::Tensor leaf = values_.narrow(0, begin, count).view(row.shape).detach().requires_grad_(true);
    leaf.mutable_grad() = gradients_.narrow(0, begin, count).view(row.shape);
    if (row.is_matrix()) decays_.narrow(0, begin, count).fill_(1);
    leaves_.emplace(row.name, leaf);
    for (const std::string& repeat : row.repeats) leaves_.emplace(repeat, leaf);
    begin += count;
  }
}

const at::Tensor& Parameters::Get(const std::string& name) const {
  const auto found = leaves_.find(name);
  HYDRANT_CHECK(found != leaves_.end());
  return found->second;
}

std::vector<TrainedTensor> Parameters::Tensors() const {
  std::vector<TrainedTensor> tensors;
  const float* data = values_.data_ptr<float>();
  for (const ParameterRow& row : rows_) {
    tensors.push_back({.name = row.name, .repeats = row.repeats, .shape = row.shape, .data = data});
    data += row.num_elements();
  }
  return tensors;
}

}  // namespace hydrant::train
