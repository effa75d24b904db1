// SPDX-License-Identifier: Apache-2.0
// Memory that packed weights are read from again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::quant {

// Starts at a whole line (64 bytes), in huge pages where the system gives them. Matrices of less than a huge page lie
// side by side in chunks of two: tale-14m would be 3,400 small pages, more than a core's second-level TLB has entries.
std::shared_ptr<uint8_t> AllocateWeights(size_t bytes);

}  // namespace hydrant::quant
