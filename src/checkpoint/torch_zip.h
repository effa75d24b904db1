// SPDX-License-Identifier: Apache-2.0
// PyTorch's .pt and .bin files since torch 1.6: a zip archive with a pickle and one entry per storage. docs/formats.md.
#pragma once

#include <memory>

#include "checkpoint/file_source.h"

namespace hydrant::checkpoint {

// Contiguous tensors are views of `file.bytes`; other views (transposed, sliced) are copied into row-major order.
// Throws FileError, also for the format before torch 1.6 and for TorchScript archives, by name.
std::unique_ptr<TensorSource> ReadTorchZip(const FileBytes& file);

}  // namespace hydrant::checkpoint
