// SPDX-License-Identifier: Apache-2.0
// What the two forms of tile registers share: amx/tiles_instructions.h and amx/tiles_software.h. A kernel takes either
// as a template parameter, so its blocking, packing, edges and epilogues are tested on machines without AMX.
//
// Both offer, for registers 0 .. 7:
//   Configure(config), Release()
//   Zero<t>()
//   Load<t, offset = 0>(from), Store<t>(to): 16 lines of 64 contiguous bytes, at from + offset. Compact tiles can be
//     declared to the compiler exactly.
//   LoadOnce<t>(from): as Load, for bytes from L2 that should not take a place in L1.
//   LoadLines<t>(from, stride), StoreLines<t>(to, stride): lines that are `stride` bytes apart.
//   Apart(): behind a product beside which nothing else is done; amx/tiles_instructions.h says why.
//   MultiplyU8S8<c, a, b>(): c[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], a unsigned, b signed; sums wrap.
//   MultiplyS8U8<c, a, b>(): the same, a signed, b unsigned.
//   MultiplyBf16<c, a, b>(): c[m][n] += (chain over k of a[m][2k] * b[k][n][0]) + (chain over k of a[m][2k + 1] *
//     b[k][n][1]), f32, in this order: each chain fused, ascending, from 0; amx/bf16.h has the treatment of denormals.
//     c[m][n] depends on line m of a only, whatever the number of lines.
#pragma once

#include <cstdint>

namespace hydrant::kernels {
namespace {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Configures the first `count` registers in full: smaller ones cost the same, except where the first operand has fewer
// rows. The other registers cannot be used. A kernel names how many it needs because each register costs time where a
// core's two threads are busy (amx/tiles_instructions.h).
constexpr TileConfig FullTiles(int count = 8) {
  TileConfig config;
  for (int t = 0; t < count; ++t) {
    config.row_bytes[t] = kTileRowBytes;
    config.rows[t] = kTileRows;
  }
  return config;
}

}  // namespace
}  // namespace hydrant::kernels
