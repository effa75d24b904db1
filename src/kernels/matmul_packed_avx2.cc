// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes with AVX2. vpmaddubsw multiplies |code| <= 128 by a signed byte, adds two
// products in 16 bits and saturates. The byte is the weight, or where the code is negative its complement,
// -weight - 1, made by an xor on any vector port. (vpsignb would make -weight, but shares the multipliers' ports on AMD
// Zen 4: 16 rows of w4 60 against 71 GMAC/s on one core, of w8 63 against 80.) With weights -127 .. 127 a pair is
// between 2 * 128 * -128 and 2 * 128 * 127 - 1, so every sum is exact. It is too small by the sum of |code| over a
// row's negative codes, the same for all outputs.
#include <immintrin.h>

#include <cstdint>

#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/packed_epilogue_avx2.h"

struct Tile {
  const uint8_t* codes;  // the first output's line of step 0
  const uint8_t* tables;
  const int8_t* dictionary;   // of signed weights
  const int8_t* activations;  // the first row's line of chunk 0
  int64_t rows;               // of the block: its lines from chunk to chunk
  int64_t steps;
  const uint8_t* ahead;      // the next panel
  const int32_t* negatives;  // at the first row, what its sums are too small by
  int32_t* sums;             // at the first row and output
};

inline __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// A byte of weight + 128 to the weight.
inline __m256i Signed(__m256i biased) { return _mm256_xor_si256(biased, _mm256_set1_epi8(-128)); }

// Weights 32 part .. 32 part + 31 of a half step of an output, from where the step begins.
template <bool kW4>
inline __m256i Weights(const uint8_t* codes, const uint8_t* tables, const int8_t* dictionary, int64_t output,
                       int64_t half, int64_t part) {
  if (!kW4) return Signed(Load(codes + (half * kPanelOutputs + output) * kLineBytes + 32 * part));
  const int64_t table = tables[output * 2 + half];
  const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(dictionary + table * kTableEntries));
  const __m256i line = Load(codes + output * kLineBytes + 32 * part);
  const __m256i indices = half == 0 ? line : _mm256_srli_epi16(line, 4);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), _mm256_and_si256(indices, _mm256_set1_epi8(15)));
}

// Bytes of -1 where `codes` are negative, else 0.
inline __m256i Negative(__m256i codes) { return _mm256_cmpgt_epi8(_mm256_setzero_si256(), codes); }

// Four sums of lanes, in order.
inline __m128i SumLanes(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

// kOutputs: 4 or 2. The unrolling is not a hint: GCC 12 keeps arrays of registers in memory around loops that it has
// not unrolled early.
template <bool kW4, int kOutputs, int kRows, bool kAhead>
void Sum(const Tile& tile) {
  __m256i sums[kRows][kOutputs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) sums[r][o] = _mm256_setzero_si256();
  }
  constexpr int kLines = kOutputs * (kW4 ? 1 : 2);
  const uint8_t *codes = tile.codes, *tables = tile.tables, *ahead = tile.ahead;
  const int8_t *chunk = tile.activations, *dictionary = tile.dictionary;
  int64_t to_codes = kW4 ? CodesAtW4(1) - CodesAtW4(0) : 2 * kPanelOutputs * kLineBytes, to_tables = TablesAtW4(1);
  for (int64_t left = tile.steps; left > 0; --left) {
    for (int i = 0; kAhead && i < kLines; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + i * kLineBytes), _MM_HINT_T1);
    }
    // To L1, two steps ahead: the distance from step to step alternates, which a core's own prefetcher does not follow.
    // (One row 147 -> 137 ms of a 7B pass, Intel, 36 GB/s.)
    for (int i = 0; kW4 && i < kOutputs; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + kTwoStepsBytesW4 + i * kLineBytes), _MM_HINT_T0);
    }
    if (kW4) _mm_prefetch(reinterpret_cast<const char*>(tables + kTwoStepsBytesW4), _MM_HINT_T0);
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t half = k / 2, part = k % 2;
      __m256i weights[kOutputs];
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) weights[o] = Weights<kW4>(codes, tables, dictionary, o, half, part);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i x = Load(chunk + r * kLineBytes + 32 * part), magnitudes = _mm256_abs_epi8(x);
        const __m256i complement = Negative(x);
#pragma GCC unroll 4
        for (int o = 0; o < kOutputs; ++o) {
          const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_xor_si256(weights[o], complement));
          sums[r][o] = _mm256_add_epi32(sums[r][o], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
          asm("" : "+x"(sums[r][o]));  // else GCC 12 adds the products of a step up first, on the stack
        }
      }
      if (part == 1) chunk += tile.rows * kLineBytes;
    }
    codes += to_codes;
    tables += to_tables;
    if (kW4) {
      to_codes = kTwoStepsBytesW4 - to_codes;
      to_tables = kTwoStepsBytesW4 - to_tables;
    }
    ahead += kLines * kLineBytes;
    // Else GCC 12 computes most addresses of a step anew: w4 from L2 on AMD Zen 4, cycles for 32 weights and a row, one
    // row 2.22 -> 2.14, four 1.72 -> 1.67.
    asm("" : "+r"(codes), "+r"(tables), "+r"(ahead), "+r"(chunk));
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m128i four = _mm_add_epi32(SumLanes(sums[r][0], sums[r][1], sums[r][kOutputs - 2], sums[r][kOutputs - 1]),
                                       _mm_set1_epi32(tile.negatives[r]));
    int32_t* to = tile.sums + r * kPanelOutputs;
    if (kOutputs == 4) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), four);
    } else {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), four);
    }
  }
}

// The sum of |code| over the negative codes of one row.
int32_t SumOfNegatives(const RowBlock& block, int64_t row, int64_t steps) {
  __m256i sum = _mm256_setzero_si256();
  const int8_t* line = block.codes + row * kLineBytes;
  for (int64_t chunk = 0; chunk < 2 * steps; ++chunk, line += block.rows * kLineBytes) {
    for (int64_t part = 0; part < 2; ++part) {
      const __m256i codes = Load(line + 32 * part);
      const __m256i negatives = _mm256_and_si256(_mm256_abs_epi8(codes), Negative(codes));
      sum = _mm256_add_epi64(sum, _mm256_sad_epu8(negatives, _mm256_setzero_si256()));
    }
  }
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return static_cast<int32_t>(_mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1));
}

using TileFunction = void (*)(const Tile& tile);

template <bool kW4, bool kAhead>
TileFunction FunctionFor(int64_t rows) {
  switch (rows) {
    case 1: return Sum<kW4, 4, 1, kAhead>;
    case 2: return Sum<kW4, 4, 2, kAhead>;
    case 3: return Sum<kW4, 2, 3, kAhead>;
    default: return Sum<kW4, 2, 4, kAhead>;
  }
}

template <bool kW4>
void Multiply(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  int32_t sums[kMaxCodeRows * kPanelOutputs], negatives[kMaxCodeRows];
  for (int64_t b = 0; b < args.num_blocks; ++b) {
    const RowBlock& block = args.blocks[b];
    for (int64_t r = 0; r < block.rows; ++r) negatives[block.first + r] = SumOfNegatives(block, r, args.steps);
  }
  alignas(32) int8_t dictionary[kNumTables * kTableEntries];
  for (int64_t i = 0; kW4 && i < kNumTables * kTableEntries; i += 32) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(dictionary + i), Signed(Load(args.dictionary + i)));
  }
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    const uint8_t* next_panel = p + 1 < panel_end ? panel + args.panel_bytes : panel;
    // Its first lines: as many as are left over by those that are fetched beside products.
    const int64_t line_bytes = kLineBytes * (kW4 ? 1 : 2);
    const int64_t first = args.panel_bytes - kPanelOutputs * args.steps * line_bytes;
    for (int64_t i = 0; i < first; i += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(next_panel + i), _MM_HINT_T1);
    }
    for (int64_t b = 0; b < args.num_blocks; ++b) {
      const RowBlock& block = args.blocks[b];
      const TileFunction function = b == 0 ? FunctionFor<kW4, true>(block.rows) : FunctionFor<kW4, false>(block.rows);
      const int64_t outputs = block.rows <= 2 ? 4 : 2;
      for (int64_t o = 0; o < kPanelOutputs; o += outputs) {
        function({panel + (kW4 ? CodesAtW4(0) : 0) + o * kLineBytes, panel + o * 2, dictionary, block.codes, block.rows,
                  args.steps, next_panel + first + o * args.steps * line_bytes, negatives + block.first,
                  sums + block.first * kPanelOutputs + o});
      }
    }
    FinishPanel(args, p, sums);
  }
}

}  // namespace

void PackedMatmulAvx2(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.type == PackedType::kW4) {
    Multiply<true>(args, panel_begin, panel_end);
  } else {
    Multiply<false>(args, panel_begin, panel_end);
  }
}

int64_t PlanRowBlocksAvx2(int64_t code_rows, int64_t* sizes) {
  if (code_rows <= 0) return 0;
  const int64_t blocks = (code_rows + 3) / 4;
  for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
  return blocks;
}

}  // namespace hydrant::kernels
