// SPDX-License-Identifier: Apache-2.0
// Tensors as training has them, and files as a run writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace hydrant::train {

struct TrainedTensor {
  std::string name;
  std::vector<std::string> repeats;  // further names of the same tensor
  std::vector<int64_t> shape;
  const float* data = nullptr;
};

// The tensor's numbers in `dtype`, which is kF32, kF16 or kBF16: a copy.
TensorView ViewOf(const TrainedTensor& tensor, DType dtype);

// "bfloat16", "float16" or "float32", as configs say it.
const char* TorchTypeName(DType dtype);

// Makes the folder where it is missing. Throws FileError.
void MakeFolder(const std::string& folder);
// Replaces the file as a whole. Throws FileError.
void WriteText(const std::string& path, const std::string& text);

}  // namespace hydrant::train
