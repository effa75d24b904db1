// SPDX-License-Identifier: Apache-2.0
// Small matrices, quads and octets, by activation codes with AVX-512 VNNI and VBMI: 16 outputs to a vector and four
// inputs of an activation row broadcast to all lanes, or 8 and eight, so that little or nothing is left to add up at
// the end. They come from L2 or L3 in order, and hardware fetches them best (7 MB of quads on one core of AMD Zen 4: 98
// GB/s with 1 and 2 rows, 97 % of the multiply peak from 3 rows on; with prefetches of ours a tenth to a quarter less).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/packed_epilogue_avx512.h"

// The products of one activation row with a line of weights are added to one of kChains sums: a product takes 4 cycles
// and one begins every cycle, so few rows need several.
template <int kRows, int kChains>
struct Sums {
  __m512i chains[kChains][kRows];

  [[gnu::always_inline]] Sums() {
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) chains[c][r] = _mm512_setzero_si512();
    }
  }
  [[gnu::always_inline]] __m512i Total(int row) const {
    __m512i sum = chains[0][row];
#pragma GCC unroll 8
    for (int c = 1; c < kChains; ++c) sum = _mm512_add_epi32(sum, chains[c][row]);
    return sum;
  }
};

struct Quads {
  static constexpr int kOneRowChains = 4;

  // sums [kRows][16] of one panel.
  template <int kRows, int kChains>
  static void Tile(const PackedMatmulArgs& args, const uint8_t* panel, const int8_t* codes, int32_t* sums) {
    constexpr int kLineQuads = static_cast<int>(kLineBytes / 4);
    Sums<kRows, kChains> products;
    for (int64_t line = 0; line < args.steps * (kStepInputs / kLineBytes); ++line) {
#pragma GCC unroll 16
      for (int q = 0; q < kLineQuads; ++q) {
        const __m512i weights = _mm512_load_si512(panel + kLineBytes * q);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int32_t four;
          __builtin_memcpy(&four, codes + kLineBytes * r + 4 * q, sizeof(four));
          __m512i& sum = products.chains[q % kChains][r];
          sum = _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(four));
        }
      }
      panel += kLineQuads * kLineBytes;
      codes += kLineBytes * kRows;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) _mm512_store_si512(sums + r * kPanelOutputs, products.Total(r));
  }
};

struct Octets {
  static constexpr int kOneRowChains = 2;
  static constexpr int64_t kTableBytes = 16;  // of one group: offsets of eight tables

  // The tables of four outputs side by side. Their offsets come in one load: loads are what a core runs out of here.
  [[gnu::always_inline]] static __m512i FourTables(const uint8_t* dictionary, const uint8_t* offsets) {
    uint64_t four;
    __builtin_memcpy(&four, offsets, sizeof(four));
    const auto table = [&](int o) {
      return _mm_load_si128(reinterpret_cast<const __m128i*>(dictionary + (four >> (16 * o) & 0xffff)));
    };
    __m512i tables = _mm512_castsi128_si512(table(0));
    tables = _mm512_inserti32x4(tables, table(1), 1);
    tables = _mm512_inserti32x4(tables, table(2), 2);
    return _mm512_inserti32x4(tables, table(3), 3);
  }

  // The lookups of a group's eight outputs: one finds 64 weights in 8 tables, the index is output * 16 + code.
  struct Lookup {
    __m512i first, second;
    const uint8_t* lines;

    [[gnu::always_inline]] Lookup(const uint8_t* dictionary, const uint8_t* offsets, const uint8_t* from)
        : first(FourTables(dictionary, offsets)), second(FourTables(dictionary, offsets + 8)), lines(from) {}

    // Inputs 8 i .. 8 i + 7.
    [[gnu::always_inline]] __m512i Weights(int i) const {
      const __m512i nibbles = _mm512_set1_epi8(15);
      const __m512i outputs =
          _mm512_set_epi64(0x7070707070707070, 0x6060606060606060, 0x5050505050505050, 0x4040404040404040,
                           0x3030303030303030, 0x2020202020202020, 0x1010101010101010, 0);
      constexpr int kAndOr = 0xEA;
      const __m512i line = _mm512_load_si512(lines + i / 2 * kLineBytes);
      const __m512i shifted = i % 2 == 0 ? line : _mm512_srli_epi16(line, 4);
      return _mm512_permutex2var_epi8(first, _mm512_ternarylogic_epi32(shifted, nibbles, outputs, kAndOr), second);
    }
  };

  // Two lanes are one output.
  template <int kRows, int kChains>
  static void Tile(const PackedMatmulArgs& args, const uint8_t* panel, const int8_t* codes, int32_t* sums) {
    const int64_t groups = args.steps * (kStepInputs / kGroupInputs);
    const uint8_t* lines = panel + args.code_offset;
    Sums<kRows, kChains> low_sums, high_sums;
    for (int64_t group = 0; group < groups; ++group) {
      const Lookup low(args.dictionary, panel + group * kTableBytes, lines + group * 4 * kLineBytes);
      const Lookup high(args.dictionary, panel + (groups + group) * kTableBytes,
                        lines + (groups + group) * 4 * kLineBytes);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const __m512i low_weights = low.Weights(i), high_weights = high.Weights(i);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int64_t eight;
          __builtin_memcpy(&eight, codes + kLineBytes * r + 8 * i, sizeof(eight));
          __m512i inputs = _mm512_set1_epi64(eight);
          asm("" : "+v"(inputs));  // else it is broadcast anew for each product
          __m512i& low_sum = low_sums.chains[i % kChains][r];
          __m512i& high_sum = high_sums.chains[i % kChains][r];
          low_sum = _mm512_dpbusd_epi32(low_sum, low_weights, inputs);
          high_sum = _mm512_dpbusd_epi32(high_sum, high_weights, inputs);
        }
      }
      codes += kLineBytes * kRows;
    }
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i a = low_sums.Total(r), b = high_sums.Total(r);
      const __m512i sum = _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
      _mm512_store_si512(sums + r * kPanelOutputs, sum);
    }
  }
};

template <typename Layout>
void SumBlock(const PackedMatmulArgs& args, const RowBlock& block, const uint8_t* panel, int32_t* sums) {
  int32_t* own = sums + block.first * kPanelOutputs;
  switch (block.rows) {
    case 1: return Layout::template Tile<1, Layout::kOneRowChains>(args, panel, block.codes, own);
    case 2: return Layout::template Tile<2, 2>(args, panel, block.codes, own);
    case 3: return Layout::template Tile<3, 2>(args, panel, block.codes, own);
    case 4: return Layout::template Tile<4, 2>(args, panel, block.codes, own);
    case 5: return Layout::template Tile<5, 1>(args, panel, block.codes, own);
    case 6: return Layout::template Tile<6, 1>(args, panel, block.codes, own);
    case 7: return Layout::template Tile<7, 1>(args, panel, block.codes, own);
    default: return Layout::template Tile<8, 1>(args, panel, block.codes, own);
  }
}

template <typename Layout>
void Multiply(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(64) int32_t sums[kMaxCodeRows * kPanelOutputs];
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    for (int64_t b = 0; b < args.num_blocks; ++b) SumBlock<Layout>(args, args.blocks[b], panel, sums);
    FinishPanel<1>(args, p, sums);
  }
}

}  // namespace

void SmallMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.type == PackedType::kQuads) {
    Multiply<Quads>(args, panel_begin, panel_end);
  } else {
    Multiply<Octets>(args, panel_begin, panel_end);
  }
}

}  // namespace hydrant::kernels
