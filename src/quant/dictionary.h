// SPDX-License-Identifier: Apache-2.0
// The tables that 4-bit codes are looked up in. docs/algorithms/low_bit_weights.md says why tables, and why these.
#pragma once

#include <cstdint>

#include "kernels/packed.h"

namespace hydrant::quant {

// Tables are numbered scale * kNumShapes + shape; scales ascend from kSmallestScale to 127.
inline constexpr int64_t kNumScales = 32;
inline constexpr int64_t kNumShapes = 8;
static_assert(kNumScales * kNumShapes == kernels::kNumTables);

// The default dictionary [256][16], biased by 128 as packed.h wants it, aligned to 64 bytes, the same bits on every
// machine. Entries of a table ascend. Every table of the smallest scale holds an exact zero.
const uint8_t* DefaultDictionary();

// The largest magnitude of the tables of a scale, 6 to 127.
double ScaleOf(int64_t scale);

}  // namespace hydrant::quant
