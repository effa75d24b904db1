// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "tensor/dtype.h"

namespace hydrant::checkpoint {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// A file of tensors whose bytes come one after another: names, types and shapes first, since they make the header. A
// new file, or nothing: written beside `path` and renamed at the end, so that a reader never sees half of it. Throws
// FileError (no such folder, full device, `path` is not a regular file).
class SafetensorsWriter {
 public:
  // `metadata` becomes `__metadata__`. The data begin at a multiple of `alignment` bytes in the file.
  SafetensorsWriter(const std::string& path, std::span<const TensorEntry> entries,
                    const std::map<std::string, std::string, std::less<>>& metadata, uint64_t alignment = 8);

  // The next bytes of the data; tensors follow each other in the order of the entries.
  void Write(const void* bytes, size_t size);
  // All bytes were written: the file takes its name.
  void Finish();

 private:
  base::AtomicFile file_;
  uint64_t remaining_ = 0;
};

struct FloatTensor {
  std::string name;
  std::vector<int64_t> shape;
  const float* data = nullptr;  // rows of shape.back() floats
  int64_t row_stride = 0;       // floats from one row to the next
};

void WriteSafetensors(const std::string& path, std::span<const FloatTensor> tensors);

}  // namespace hydrant::checkpoint
