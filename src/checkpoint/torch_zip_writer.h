// SPDX-License-Identifier: Apache-2.0
// Writes what torch.save writes of a state dict: for programs that read no safetensors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace hydrant::checkpoint {

struct TorchTensor {
  std::string name;
  TensorView view;
};

struct TorchZipOptions {
  // From this size or offset on, numbers stand in zip64 fields. Smaller in tests.
  uint64_t zip64_from = 0xFFFFFFFF;
  std::function<void()> look = {};  // called again and again; may throw to end the work
};

// A new file or nothing (base/atomic_file.h). Tensors whose views are the same bytes share one storage, as tied modules
// do. Names are printable ASCII, and no name stands twice. Throws FileError where the file cannot be written.
void WriteTorchZip(const std::string& path, std::span<const TorchTensor> tensors, const TorchZipOptions& options = {});

}  // namespace hydrant::checkpoint
