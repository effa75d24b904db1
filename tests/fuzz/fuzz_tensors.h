// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>

#include "checkpoint/tensor_source.h"

namespace hydrant::fuzz {

// Touches every byte of every tensor, so that the address sanitizer sees a view that leaves its storage.
inline void ReadAll(const checkpoint::TensorSource& source) {
  for (const auto& [name, tensor] : source.tensors()) {
    uint64_t sum = 0;
    for (size_t i = 0; i < tensor.view.num_bytes(); ++i) sum += tensor.view.data[i];
    if (tensor.view.empty() || sum > 255 * tensor.view.num_bytes()) std::abort();
  }
}

}  // namespace hydrant::fuzz
