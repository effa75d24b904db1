// SPDX-License-Identifier: Apache-2.0
// Writes f32 tensors as a safetensors file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hydrant::checkpoint {

struct FloatTensor {
  std::string name;
  std::vector<int64_t> shape;
  const float* data = nullptr;  // rows of shape.back() floats
  int64_t row_stride = 0;       // floats from one row to the next
};

// A new file, or nothing: written beside `path` and renamed at the end, so that a reader never sees half of it. Throws
// FileError (no such folder, full device, `path` is not a regular file).
void WriteSafetensors(const std::string& path, std::span<const FloatTensor> tensors);

}  // namespace hydrant::checkpoint
