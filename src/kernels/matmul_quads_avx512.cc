// SPDX-License-Identifier: Apache-2.0
// Small 8-bit matrices by activation codes with AVX-512 VNNI: sixteen outputs to a vector, four inputs of an activation
// row broadcast to all lanes. They come from L2 or L3 in order, and hardware fetches them best (7 MB on one core of AMD
// Zen 4: 98 GB/s with 1 and 2 rows, 97 % of the multiply peak from 3 rows on; with prefetches of ours a tenth to a
// quarter less).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/packed_epilogue_avx512.h"

constexpr int64_t kQuadsPerLine = kLineBytes / 4;

// sums [kRows][16] of one panel. A product takes 4 cycles and begins every cycle: kChains sums per row, so that as many
// are under way.
template <int kRows, int kChains>
inline void QuadTile(const uint8_t* panel, const int8_t* codes, int64_t lines, int32_t* sums) {
  __m512i chains[kChains][kRows];
#pragma GCC unroll 8
  for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) chains[c][r] = _mm512_setzero_si512();
  }
  for (int64_t line = 0; line < lines; ++line) {
#pragma GCC unroll 16
    for (int q = 0; q < kQuadsPerLine; ++q) {
      const __m512i weights = _mm512_load_si512(panel + kLineBytes * q);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        __builtin_memcpy(&four, codes + kLineBytes * r + 4 * q, sizeof(four));
        chains[q % kChains][r] = _mm512_dpbusd_epi32(chains[q % kChains][r], weights, _mm512_set1_epi32(four));
      }
    }
    panel += kQuadsPerLine * kLineBytes;
    codes += kLineBytes * kRows;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512i sum = chains[0][r];
#pragma GCC unroll 8
    for (int c = 1; c < kChains; ++c) sum = _mm512_add_epi32(sum, chains[c][r]);
    _mm512_store_si512(sums + r * kPanelOutputs, sum);
  }
}

inline void SumBlock(const RowBlock& block, const uint8_t* panel, int64_t lines, int32_t* sums) {
  int32_t* own = sums + block.first * kPanelOutputs;
  switch (block.rows) {
    case 1: return QuadTile<1, 4>(panel, block.codes, lines, own);
    case 2: return QuadTile<2, 4>(panel, block.codes, lines, own);
    case 3: return QuadTile<3, 2>(panel, block.codes, lines, own);
    case 4: return QuadTile<4, 2>(panel, block.codes, lines, own);
    case 5: return QuadTile<5, 2>(panel, block.codes, lines, own);
    case 6: return QuadTile<6, 2>(panel, block.codes, lines, own);
    case 7: return QuadTile<7, 1>(panel, block.codes, lines, own);
    default: return QuadTile<8, 1>(panel, block.codes, lines, own);
  }
}

}  // namespace

void QuadsMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(64) int32_t sums[kMaxCodeRows * kPanelOutputs];
  const int64_t lines = args.steps * (kStepInputs / kLineBytes);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    for (int64_t b = 0; b < args.num_blocks; ++b) SumBlock(args.blocks[b], panel, lines, sums);
    FinishPanel<1>(args, p, sums);
  }
}

}  // namespace hydrant::kernels
