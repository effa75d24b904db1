// SPDX-License-Identifier: Apache-2.0
// All numbers that training changes, in one flat tensor: the optimizer, clipping, data parallelism and checkpoints see
// three arrays of one length, and a network sees tensors by the names that its file has.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/head_rows.h"
#include "train/trained_tensor.h"

namespace hydrant::train {

class Parameters {
 public:
  explicit Parameters(std::vector<ParameterRow> rows);

  // A leaf of the graph: a view of values() whose gradient is a view of gradients(). Throws InternalError for a name
  // that no row has, repeats included.
  const at::Tensor& Get(const std::string& name) const;
  bool Has(const std::string& name) const { return leaves_.contains(name); }

  const std::vector<ParameterRow>& rows() const { return rows_; }
  at::Tensor& values() { return values_; }  // [P] f32
  const at::Tensor& values() const { return values_; }
  at::Tensor& gradients() { return gradients_; }  // [P] f32
  const at::Tensor& gradients() const { return gradients_; }
  // 1 where weight decay applies: matrices, not biases or norms. [P]
  const at::Tensor& decays() const { return decays_; }
  int64_t size() const { return values_.numel(); }
  // Views of the values as they are now, by their names in the file.
  std::vector<TrainedTensor> Tensors() const;

 private:
  std::vector<ParameterRow> rows_;
  at::Tensor values_, gradients_, decays_;
  std::map<std::string, at::Tensor, std::less<>> leaves_;
};

}  // namespace hydrant::train
