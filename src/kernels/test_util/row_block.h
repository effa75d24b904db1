// SPDX-License-Identifier: Apache-2.0
// Row blocks made by hand, for tests and benchmarks. The engine's are made by quantize_row.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "kernels/kernels.h"

namespace hydrant::kernels {

// Sets the code of `block`'s row `row`'s input `i` as `table` reads it. `codes`: the block's, BlockBytes(block) bytes
// for each 64 inputs.
inline void SetCode(const KernelTable& table, const RowBlock& block, int64_t row, int64_t i, int8_t code,
                    int8_t* codes) {
  int8_t* chunk = codes + i / kGroupInputs * table.BlockBytes(block);
  const int64_t place = i % kGroupInputs;
  if (table.quad_codes) {
    chunk[(place / 4 * kQuadRows + row) * 4 + place % 4] = code;
  } else if (table.sign_codes) {
    chunk[row * 2 * kLineBytes + place] = static_cast<int8_t>(std::abs(code));
    chunk[(row * 2 + 1) * kLineBytes + place] = static_cast<int8_t>(code < 0 ? 0x7f : 0x80);
  } else {
    chunk[row * kLineBytes + place] = code;
  }
}

// What `code` adds to its row's PackedMatmulArgs::excess.
inline uint32_t ExcessOf(const KernelTable& table, int8_t code) {
  if (table.sign_codes) return static_cast<uint32_t>(code < 0 ? code : 0);
  return 128U * static_cast<uint32_t>(code);
}

}  // namespace hydrant::kernels
