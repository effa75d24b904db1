// SPDX-License-Identifier: Apache-2.0
// Reads the pickle of a state dict. Nothing is ever executed: a small interpreter knows the opcodes and the few globals
// that torch.save writes for tensors, dicts, lists, tuples, numbers and text, and refuses every other by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace hydrant::checkpoint {

// A view of a storage, as the file says; nothing but the signs of its numbers is checked.
struct PickledTensor {
  std::string storage_key;  // the storage is the zip entry "<archive>/data/<key>"
  DType dtype = DType::kF32;
  int64_t storage_elements = 0;
  int64_t offset = 0;  // elements
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // elements, as many as extents
};

// Name -> tensor. `file` is the path of the archive, for errors. Throws FileError.
std::map<std::string, PickledTensor> ReadStateDict(std::string_view pickle, const std::string& file);

}  // namespace hydrant::checkpoint
