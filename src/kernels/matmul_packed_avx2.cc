// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes with AVX2. vpmaddubsw multiplies |code| <= 128 by a signed byte, adds two
// products in 16 bits and saturates. The byte is the weight, or where the code is negative its complement,
// -weight - 1, made by an xor on any vector port. (vpsignb would make -weight, but shares the multipliers' ports on AMD
// Zen 4: 16 rows of w4 60 against 71 GMAC/s on one core, of w8 63 against 80.) With weights -127 .. 127 a pair is
// between 2 * 128 * -128 and 2 * 128 * 127 - 1, so every sum is exact. It is too large by the sum of a row's negative
// codes (below 0), the same for all outputs: PackedMatmulArgs::excess.
//
// Up to four rows take weights and codes as they lie and go through a whole panel at a time. For more rows |code| and
// the byte that the xor takes lie ready side by side, "signs" (KernelTable::first_sign_rows); the xor takes a weight's
// bias off as well. A product of 32 weights is then four instructions and little else, if several rows and outputs
// share what is loaded: three rows by four outputs, from weights in bytes. 4-bit weights become bytes for two thousand
// inputs of a panel, which stay in the caches while all rows multiply them.
#include <immintrin.h>

#include <cstdint>

#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/packed_epilogue_avx2.h"

constexpr int64_t kFewRows = kFirstSignRowsAvx2 - 1;         // code rows in lines, one block
constexpr int64_t kSignRows = 3;                             // of the largest block of signs
constexpr int64_t kSignOutputs = 4;                          // of its tile
constexpr int64_t kPartSteps = 16;                           // that all rows multiply before the next
constexpr int64_t kCodeBytes = 2 * kLineBytes;               // of 64 inputs of a row in signs
constexpr int64_t kChunkBytes = kPanelOutputs * kLineBytes;  // of 64 inputs of a panel, in bytes

inline __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void Fetch(const uint8_t* line) { _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1); }
inline void FetchToL1(const uint8_t* line) { _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0); }

// A tile's sums, in lanes. The unrolling is not a hint: GCC 12 keeps arrays of registers in memory around loops that it
// has not unrolled early.
template <int kRows, int kOutputs>
struct Sums {
  __m256i at[kRows][kOutputs];

  [[gnu::always_inline]] void Zero() {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) at[r][o] = _mm256_setzero_si256();
    }
  }
  // 32 inputs of a row and an output.
  [[gnu::always_inline]] void Add(int r, int o, __m256i weights, __m256i magnitudes, __m256i signs) {
    const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_xor_si256(weights, signs));
    at[r][o] = _mm256_add_epi32(at[r][o], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    asm("" : "+x"(at[r][o]));  // else GCC 12 adds the products of a step up first, on the stack
  }
  // to[r][16], kOutputs of each, or added to what is there.
  [[gnu::always_inline]] void Store(int32_t* to, bool add) const {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(at[r][0], at[r][1]),
                                            _mm256_hadd_epi32(at[r][kOutputs - 2], at[r][kOutputs - 1]));
      __m128i four = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
      auto* place = reinterpret_cast<__m128i*>(to + r * kPanelOutputs);
      if (add) four = _mm_add_epi32(four, _mm_loadu_si128(place));
      if (kOutputs == 4) {
        _mm_storeu_si128(place, four);
      } else {
        _mm_storel_epi64(place, four);
      }
    }
  }
};

// Both halves of the lane hold the table of the output's weights in that half of the step.
inline __m256i Entries(const uint8_t* dictionary, const uint8_t* tables, int64_t output, int64_t half) {
  const int64_t table = tables[output * 2 + half];
  const auto* entries = reinterpret_cast<const __m128i*>(dictionary + table * kTableEntries);
  return _mm256_broadcastsi128_si256(_mm_load_si128(entries));
}

inline __m256i Nibbles(__m256i line, int64_t half) {
  return _mm256_and_si256(half == 0 ? line : _mm256_srli_epi16(line, 4), _mm256_set1_epi8(15));
}

// weight + 128 to the weight or back.
inline __m256i Rebias(__m256i bytes) { return _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)); }

// What a block of few rows and some outputs of a panel need.
struct FewRows {
  const uint8_t* codes;  // the first output's line of step 0
  const uint8_t* tables;
  const uint8_t* dictionary;  // of weights without bias
  const int8_t* activations;  // [2 steps][rows][64]
  int64_t rows, steps;
  const uint8_t* ahead;  // lines of the next panel to fetch, as many as these outputs have
  int32_t* sums;         // [rows][16]
};

// Weights 32 part .. 32 part + 31 of a half step of an output, from where the step begins; of w8 + 128.
template <bool kW4>
inline __m256i Weights(const FewRows& tile, const uint8_t* codes, const uint8_t* tables, int64_t output, int64_t half,
                       int64_t part) {
  if (!kW4) return Load(codes + (half * kPanelOutputs + output) * kLineBytes + 32 * part);
  const __m256i nibbles = Nibbles(Load(codes + output * kLineBytes + 32 * part), half);
  return _mm256_shuffle_epi8(Entries(tile.dictionary, tables, output, half), nibbles);
}

template <bool kW4, int kRows, int kOutputs>
[[gnu::noinline]] void SumFew(const FewRows& tile) {
  Sums<kRows, kOutputs> sums;
  sums.Zero();
  constexpr int kLines = kOutputs * (kW4 ? 1 : 2);
  constexpr bool kBiasInSigns = !kW4 && kRows <= 2;  // else off the weights, once for all rows
  const uint8_t *codes = tile.codes, *tables = tile.tables, *ahead = tile.ahead;
  const int8_t* chunk = tile.activations;
  int64_t to_codes = kW4 ? CodesAtW4(1) - CodesAtW4(0) : 2 * kChunkBytes, to_tables = TablesAtW4(1);
  for (int64_t left = tile.steps; left > 0; --left) {
    for (int i = 0; i < kLines; ++i) Fetch(ahead + i * kLineBytes);
    // Two steps ahead: the distance from step to step alternates, which a core's own prefetcher does not follow.
    // (One row 147 -> 137 ms of a 7B pass, Intel, 36 GB/s.)
    for (int i = 0; kW4 && i < kOutputs; ++i) FetchToL1(codes + kTwoStepsBytesW4 + i * kLineBytes);
    if (kW4) FetchToL1(tables + kTwoStepsBytesW4);
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t half = k / 2, part = k % 2;
      __m256i weights[kOutputs];
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) {
        weights[o] = Weights<kW4>(tile, codes, tables, o, half, part);
        if (!kW4 && !kBiasInSigns) weights[o] = Rebias(weights[o]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i x = Load(chunk + r * kLineBytes + 32 * part), magnitudes = _mm256_abs_epi8(x);
        const __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), x);
        const __m256i signs = kBiasInSigns ? Rebias(negative) : negative;
#pragma GCC unroll 4
        for (int o = 0; o < kOutputs; ++o) sums.Add(r, o, weights[o], magnitudes, signs);
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
  sums.Store(tile.sums, false);
}

// dictionary: of weights without bias. next: of the next panel, the lines that are fetched beside products.
template <bool kW4>
void MultiplyFew(const PackedMatmulArgs& args, const uint8_t* dictionary, const uint8_t* panel, const uint8_t* next,
                 int32_t* sums) {
  using Function = void (*)(const FewRows& tile);
  static constexpr Function kFunctions[kFewRows] = {SumFew<kW4, 1, 4>, SumFew<kW4, 2, 4>, SumFew<kW4, 3, 2>,
                                                    SumFew<kW4, 4, 2>};
  const RowBlock& block = args.blocks[0];
  const int64_t outputs = block.rows <= 2 ? 4 : 2, line_bytes = kLineBytes * (kW4 ? 1 : 2);
  for (int64_t o = 0; o < kPanelOutputs; o += outputs) {
    kFunctions[block.rows - 1]({panel + (kW4 ? CodesAtW4(0) : 0) + o * kLineBytes, panel + o * 2, dictionary,
                                block.codes, block.rows, args.steps, next + o * args.steps * line_bytes, sums + o});
  }
}

// What a block of signs and four outputs of a panel need, for some inputs.
struct Signs {
  const uint8_t* weights;  // + 128, the first output's line of [chunks][16][64]
  const int8_t* codes;     // [chunks][rows][2][64]
  int64_t chunks;          // of 64 inputs
  const uint8_t* ahead;    // lines of the next panel to fetch, as many as these outputs have for these inputs
  int32_t* sums;           // [rows][16]
  bool add;                // to `sums`
};

// kAhead: lines to fetch for a chunk.
template <int kRows, int64_t kAhead>
[[gnu::noinline]] void SumSigns(const Signs& tile) {
  Sums<kRows, kSignOutputs> sums;
  sums.Zero();
  const uint8_t *weights = tile.weights, *ahead = tile.ahead;
  const int8_t* codes = tile.codes;
  for (int64_t left = tile.chunks; left > 0; --left) {
    for (int64_t i = 0; i < kAhead; ++i) Fetch(ahead + i * kLineBytes);
#pragma GCC unroll 2
    for (int64_t part = 0; part < 64; part += 32) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const int8_t* row = codes + r * kCodeBytes + part;
        const __m256i magnitudes = Load(row), signs = Load(row + kLineBytes);
#pragma GCC unroll 4
        for (int o = 0; o < kSignOutputs; ++o) sums.Add(r, o, Load(weights + o * kLineBytes + part), magnitudes, signs);
      }
    }
    weights += kChunkBytes;
    codes += kRows * kCodeBytes;
    ahead += kAhead * kLineBytes;
    asm("" : "+r"(weights), "+r"(ahead), "+r"(codes));
  }
  sums.Store(tile.sums, tile.add);
}

template <int64_t kAhead>
void MultiplySigns(int64_t rows, const Signs& tile) {
  return rows == 2 ? SumSigns<2, kAhead>(tile) : SumSigns<kSignRows, kAhead>(tile);
}

// `steps` steps of a w4 panel from step `first` on to bytes of weight + 128, [2 steps][16][64].
[[gnu::noinline]] void Expand(const PackedMatmulArgs& args, const uint8_t* panel, int64_t first, int64_t steps,
                              uint8_t* to) {
  for (int64_t s = first; s < first + steps; ++s, to += 2 * kChunkBytes) {
    const uint8_t *codes = panel + CodesAtW4(s), *tables = panel + TablesAtW4(s);
    for (int64_t o = 0; o < kPanelOutputs; ++o) {
      const __m256i low = Entries(args.dictionary, tables, o, 0), high = Entries(args.dictionary, tables, o, 1);
      for (int64_t part = 0; part < 64; part += 32) {
        const __m256i line = Load(codes + o * kLineBytes + part);
        uint8_t* at = to + o * kLineBytes + part;
        _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm256_shuffle_epi8(low, Nibbles(line, 0)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(at + kChunkBytes), _mm256_shuffle_epi8(high, Nibbles(line, 1)));
      }
    }
  }
}

// next: as of MultiplyFew; fetched beside the first block.
template <bool kW4>
void MultiplyMany(const PackedMatmulArgs& args, const uint8_t* panel, const uint8_t* next, int32_t* sums) {
  alignas(64) uint8_t expanded[kW4 ? 2 * kPartSteps * kChunkBytes : kLineBytes];
  constexpr int64_t kAhead = kSignOutputs / (kW4 ? 2 : 1), kLinesOfStep = kPanelOutputs * (kW4 ? 1 : 2);
  for (int64_t step = 0; step < args.steps; step += kPartSteps) {
    const int64_t steps = args.steps - step < kPartSteps ? args.steps - step : kPartSteps;
    if (kW4) Expand(args, panel, step, steps, expanded);
    const uint8_t* weights = kW4 ? expanded : panel + 2 * step * kChunkBytes;
    const uint8_t* ahead = next + step * kLinesOfStep * kLineBytes;
    for (int64_t b = 0; b < args.num_blocks; ++b) {
      const RowBlock& block = args.blocks[b];
      const int8_t* codes = block.codes + 2 * step * block.rows * kCodeBytes;
      for (int64_t o = 0; o < kPanelOutputs; o += kSignOutputs) {
        const Signs tile{weights + o * kLineBytes,
                         codes,
                         2 * steps,
                         ahead + o * steps * (kLinesOfStep / kPanelOutputs) * kLineBytes,
                         sums + block.first * kPanelOutputs + o,
                         step > 0};
        b == 0 ? MultiplySigns<kAhead>(block.rows, tile) : MultiplySigns<0>(block.rows, tile);
      }
    }
  }
}

template <bool kW4>
void Multiply(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(32) int32_t sums[kMaxCodeRows * kPanelOutputs];
  const bool few = !args.blocks[0].signs;
  alignas(32) uint8_t dictionary[kNumTables * kTableEntries];
  for (int64_t i = 0; kW4 && few && i < kNumTables * kTableEntries; i += 32) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(dictionary + i), Rebias(Load(args.dictionary + i)));
  }
  // Of the next panel, the first lines, as many as are left over by those that are fetched beside products.
  const int64_t first = args.panel_bytes - kPanelOutputs * args.steps * kLineBytes * (kW4 ? 1 : 2);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    const uint8_t* next = p + 1 < panel_end ? panel + args.panel_bytes : args.next != nullptr ? args.next : panel;
    for (int64_t i = 0; i < first; i += kLineBytes) Fetch(next + i);
    if (few) {
      MultiplyFew<kW4>(args, dictionary, panel, next + first, sums);
    } else {
      MultiplyMany<kW4>(args, panel, next + first, sums);
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
  const int64_t blocks = code_rows <= kFewRows ? 1 : (code_rows + kSignRows - 1) / kSignRows;
  for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
  return blocks;
}

}  // namespace hydrant::kernels
