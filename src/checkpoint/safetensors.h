// SPDX-License-Identifier: Apache-2.0
// One safetensors file: u64 header length, JSON header, data. docs/formats.md.
#pragma once

#include <memory>

#include "checkpoint/file_source.h"

namespace hydrant::checkpoint {

// Tensors are views of `file.bytes`. Names that the writer dropped because they are tied (`__metadata__` maps such a
// name to the stored one) become further names with the same storage_id. Throws FileError.
std::unique_ptr<TensorSource> ReadSafetensors(const FileBytes& file);

}  // namespace hydrant::checkpoint
