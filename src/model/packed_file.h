// SPDX-License-Identifier: Apache-2.0
// Packed weights out of a converted file, used where they lie. docs/formats.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "quant/packed_weight.h"

namespace hydrant::model {

// The weights of a packed tensor, one for each of its `slices`. Nothing is read but scales and dictionary: sizes and
// alignment are checked before a pointer is formed, and a table number cannot be out of range. Throws FileError.
std::vector<std::shared_ptr<const quant::PackedWeight>> PackedFromFile(const checkpoint::StoredTensor& stored,
                                                                       const std::string& name, int64_t slices);

}  // namespace hydrant::model
