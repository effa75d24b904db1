// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes, 32 of them in a ymm. Included by target files inside their unnamed namespace,
// after <immintrin.h>, kernels/packed.h and avx2/packed_epilogue.h, and after:
//   __m256i Load(p)
//   int64_t kCodeBytes                        of 64 inputs of a row, as RowBlock::codes has them
//   RowCodes LoadCodes(codes)                 32 inputs of a row
//   __m256i AddProducts(sums, weights, codes) 32 products to eight sums; weights: bytes of weight + 128
//   bool kWeightsOnce                         whether RowCodes is one register
//
// All rows multiply some inputs of a panel before the next inputs, so that codes and weights stay in the first-level
// cache. 4-bit weights are turned into bytes in registers if there is one block of few rows, and in memory if there are
// more blocks.
//
// There are two ways to fetch weights, since cores differ in what they fetch best. One goes through a panel while it
// fetches the next panel to the second-level cache. The other, "in turns", goes through a few steps of four panels, one
// after the other, while it fetches the steps behind them to the first level, a line of each panel at a time: four
// streams. More than kTurnRows rows hide the reading either way, and their sums between turns would take more room than
// turns save. Milliseconds of 7B w4a8 with avx-vnni on Intel:
//   rows       8     16    24    32
//   one way    285   417   533   683
//   in turns   205   349   511   654

constexpr int64_t kFewRows = 4;     // most code rows of an only block
constexpr int64_t kManyRows = 3;    // most code rows of a block if there are several
constexpr int64_t kPartSteps = 16;  // that all rows multiply before the next steps
constexpr int64_t kTurnRows = 32;   // most code rows that go in turns
constexpr int64_t kTurnPanels = 4;
constexpr int64_t kTurnLines = 32;  // of a panel in its turn; two turns' lines take half of L1
constexpr int64_t kFewSteps = 6;    // matrices of so few lie in a cache: no turns, less to fetch
constexpr int64_t kChunkBytes = kPanelOutputs * kLineBytes;  // of 64 inputs of a panel, in bytes

// How far ahead lines of the same outputs are fetched to the first level: eight steps of w4, four of w8. Time over that
// of the version before this one (AMD Zen 3, two threads from memory, medians of five runs in turn):
//   distance   2 steps   8 steps   12 steps           distance   none   4 steps
//   w4 1 row   1.04      0.94      1.04               w8 1 row   1.10   0.87
//      2 rows  0.92      0.91      0.95                  2 rows  1.05   0.89
constexpr int64_t kNibblesAhead = 4 * kTwoStepsBytesW4, kBytesAhead = 8 * kChunkBytes;

// Lines are fetched once more, to the second level, at twice that distance: the fetch a panel ago may have been late or
// lost. Time over that without it (AMD Zen 4, two threads from memory, five runs in turn): 7B w4a8 0.88, 0.97 and 0.97
// with 1, 2 and 4 rows, 1B w8a8 0.82, 0.78 and 0.91. Half of the distance, or three quarters, is as good; fetching them
// still more often is no better.
template <bool kW4>
constexpr int64_t kLater = 2 * (kW4 ? kNibblesAhead : kBytesAhead);

// Always inlined: GCC 12 drops calls of functions that only prefetch.
[[gnu::always_inline]] inline void Fetch(const uint8_t* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
}
[[gnu::always_inline]] inline void FetchToL1(const uint8_t* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
}

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
  // [rows][16]
  [[gnu::always_inline]] void Load(const __m256i* from) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) at[r][o] = _mm256_load_si256(from + r * kPanelOutputs + o);
    }
  }
  [[gnu::always_inline]] void Keep(__m256i* to) const {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) _mm256_store_si256(to + r * kPanelOutputs + o, at[r][o]);
    }
  }
  // Adds the products of 32 inputs of a row and an output.
  [[gnu::always_inline]] void Add(int r, int o, __m256i weights, const RowCodes& codes) {
    at[r][o] = AddProducts(at[r][o], weights, codes);
    asm("" : "+x"(at[r][o]));  // else GCC 12 adds the products of a step up first, on the stack
  }
  // Stores kOutputs sums of each row to to[r][16], or adds them to what is there.
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

// The table of an output's weights in one half of a step, in both halves of the register.
inline __m256i Entries(const uint8_t* dictionary, const uint8_t* tables, int64_t output, int64_t half) {
  const int64_t table = tables[output * 2 + half];
  const auto* entries = reinterpret_cast<const __m128i*>(dictionary + table * kTableEntries);
  return _mm256_broadcastsi128_si256(_mm_load_si128(entries));
}

inline __m256i Nibbles(__m256i line, int64_t half) {
  return _mm256_and_si256(half == 0 ? line : _mm256_srli_epi16(line, 4), _mm256_set1_epi8(15));
}

// What a block of rows and a panel need, for some inputs from an even step on.
struct Part {
  const uint8_t* weights = nullptr;     // bytes of weight + 128, [chunks][16][64], or the first step's lines of w4
  const uint8_t* tables = nullptr;      // of w4
  const uint8_t* dictionary = nullptr;  // of w4
  const int8_t* codes = nullptr;        // [chunks][rows][kCodeBytes]
  int64_t chunks = 0;                   // of 64 inputs, even
  const uint8_t* ahead = nullptr;       // lines to fetch: of the next panel, or of the first panel's next turn
  int64_t later = 0;                    // distance of fetching lines once more; 0: they lie in a cache
  int32_t* sums = nullptr;              // [rows][16]
  bool add = false;                     // to `sums`, or in turns to `lanes`
  // In turns only: the panel's number, bytes from panel to panel, the sums so far, and whether this part completes
  // them.
  int64_t turn = 0, between = 0;
  __m256i* lanes = nullptr;  // [rows][16]
  bool last = false;
};

// What is fetched beside products: kNothing; kNibbles, lines of the next panel, half as many as the expanded weights
// take; kBytes, as many lines of the next panel; kBytesToL1, also lines of this panel some steps later. In turns:
// nothing, half as many lines as the products read, or as many.
enum class Ahead : uint8_t { kNothing, kNibbles, kBytes, kBytesToL1, kNothingInTurns, kNibblesInTurns, kInTurns };
constexpr bool IsInTurns(Ahead fetch) { return fetch >= Ahead::kNothingInTurns; }

// In turns: how many lines a tile fetches at a time, each from another panel.
template <Ahead kFetch, int kOutputs>
constexpr int kTurnWidth = kFetch == Ahead::kInTurns          ? kOutputs
                           : kFetch == Ahead::kNibblesInTurns ? kOutputs / 2
                                                              : 0;
// Where a tile begins to fetch `count` times that many lines.
template <Ahead kFetch, int kOutputs>
[[gnu::always_inline]] inline const uint8_t* AheadInTurns(const Part& part, int64_t first, int64_t count) {
  constexpr int64_t kWidth = kTurnWidth<kFetch, kOutputs> > 0 ? kTurnWidth<kFetch, kOutputs> : 1;
  constexpr int64_t kTilesPerLine = kTurnPanels / kWidth;
  const int64_t tile = first / kOutputs, tiles = part.turn * (kPanelOutputs / kOutputs) + tile;
  return part.ahead + tiles / kTilesPerLine * count * kLineBytes + tile % kTilesPerLine * kWidth * part.between;
}

template <Ahead kFetch, int kRows, int kOutputs>
[[gnu::always_inline]] inline void Begin(const Part& part, int64_t first, Sums<kRows, kOutputs>& sums) {
  if (IsInTurns(kFetch) && part.add) {
    sums.Load(part.lanes + first);
  } else {
    sums.Zero();
  }
}
template <Ahead kFetch, int kRows, int kOutputs>
[[gnu::always_inline]] inline void End(const Part& part, int64_t first, const Sums<kRows, kOutputs>& sums) {
  if (IsInTurns(kFetch) && !part.last) {
    sums.Keep(part.lanes + first);
  } else {
    sums.Store(part.sums + first, !IsInTurns(kFetch) && part.add);
  }
}

// Adds the products of 32 inputs of a tile. If a row's codes are one register, each weight is loaded once, otherwise
// the codes of each row are.
template <int kRows, int kOutputs>
[[gnu::always_inline]] inline void AddInputs(Sums<kRows, kOutputs>& sums, const uint8_t* weights, const int8_t* codes) {
  if constexpr (kWeightsOnce) {
    RowCodes rows[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) rows[r] = LoadCodes(codes + r * kCodeBytes);
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      const __m256i weight = Load(weights + o * kLineBytes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums.Add(r, o, weight, rows[r]);
    }
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const RowCodes row = LoadCodes(codes + r * kCodeBytes);
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) sums.Add(r, o, Load(weights + o * kLineBytes), row);
    }
  }
}

// Adds the products of some outputs of a part, with weights as bytes.
template <int kRows, int kOutputs, Ahead kFetch>
[[gnu::always_inline]] inline void SumBytes(const Part& part, int64_t first) {
  constexpr bool kInTurns = IsInTurns(kFetch);
  constexpr int64_t kLines = kInTurns || kFetch == Ahead::kNothing ? 0
                             : kFetch == Ahead::kNibbles           ? kOutputs / 2
                                                                   : kOutputs;
  Sums<kRows, kOutputs> sums;
  Begin<kFetch>(part, first, sums);
  const uint8_t *weights = part.weights + first * kLineBytes, *ahead = part.ahead;
  if (kInTurns) {
    ahead = AheadInTurns<kFetch, kOutputs>(part, first, part.chunks);
  } else {
    ahead += first / kOutputs * kLines * part.chunks * kLineBytes;
  }
  const int8_t* codes = part.codes;
  for (int64_t left = part.chunks; left > 0; --left) {
    for (int64_t i = 0; i < kLines; ++i) Fetch(ahead + i * kLineBytes);
    for (int64_t i = 0; i < kTurnWidth<kFetch, kOutputs>; ++i) FetchToL1(ahead + i * part.between);
    for (int64_t i = 0; kFetch == Ahead::kBytesToL1 && i < kOutputs; ++i) {
      FetchToL1(weights + kBytesAhead + i * kLineBytes);
      Fetch(weights + part.later + i * kLineBytes);
    }
#pragma GCC unroll 2
    for (int64_t half = 0; half < 64; half += 32) {
      AddInputs(sums, weights + half, codes + half);
    }
    weights += kChunkBytes;
    codes += kRows * kCodeBytes;
    ahead += (kInTurns ? 1 : kLines) * kLineBytes;
    asm("" : "+r"(weights), "+r"(ahead), "+r"(codes));
  }
  End<kFetch>(part, first, sums);
}

// Fetches lines beside a step of nibbles. The distance from step to step alternates, which a core's own prefetcher does
// not follow; hence the fetches to the first level. (A pass of 7B with one row: 147 -> 137 ms, Intel, 36 GB/s.)
template <int kOutputs, Ahead kFetch>
[[gnu::always_inline]] inline void FetchBeside(const Part& part, const uint8_t* ahead, const uint8_t* lines,
                                               const uint8_t* tables) {
  for (int i = 0; i < kOutputs; ++i) {
    if (kFetch == Ahead::kInTurns) {
      FetchToL1(ahead + i * part.between);
    } else {
      Fetch(ahead + i * kLineBytes);
      FetchToL1(lines + kNibblesAhead + i * kLineBytes);
      Fetch(lines + part.later + i * kLineBytes);
    }
  }
  if (kFetch != Ahead::kInTurns) FetchToL1(tables + kNibblesAhead);
}

// The same as SumBytes with w4 as it lies. A table serves two products of each of two outputs, and so do a row's codes
// once they are loaded.
template <int kRows, int kOutputs, Ahead kFetch>
[[gnu::always_inline]] inline void SumNibbles(const Part& part, int64_t first) {
  constexpr bool kInTurns = kFetch == Ahead::kInTurns;
  Sums<kRows, kOutputs> sums;
  Begin<kFetch>(part, first, sums);
  const uint8_t *lines = part.weights + first * kLineBytes, *tables = part.tables + 2 * first;
  const uint8_t* ahead = kInTurns ? AheadInTurns<kFetch, kOutputs>(part, first, part.chunks / 2)
                                  : part.ahead + first * part.chunks / 2 * kLineBytes;
  const int8_t* codes = part.codes;
  int64_t to_lines = CodesAtW4(1) - CodesAtW4(0), to_tables = TablesAtW4(1);
  for (int64_t left = part.chunks; left > 0; left -= 2) {
    FetchBeside<kOutputs, kFetch>(part, ahead, lines, tables);
#pragma GCC unroll 4
    for (int64_t k = 0; k < kOutputs; ++k) {  // each k: half a step of two outputs
      const int64_t half = k / (kOutputs / 2), pair = k % (kOutputs / 2) * 2;
      const __m256i entries = Entries(part.dictionary, tables, pair, half);  // both outputs'
      __m256i weights[2][2];
#pragma GCC unroll 2
      for (int64_t o = 0; o < 2; ++o) {
        const uint8_t* line = lines + (pair + o) * kLineBytes;
        weights[0][o] = _mm256_shuffle_epi8(entries, Nibbles(Load(line), half));
        weights[1][o] = _mm256_shuffle_epi8(entries, Nibbles(Load(line + 32), half));
      }
#pragma GCC unroll 2
      for (int64_t i = 0; i < 2; ++i) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const RowCodes row = LoadCodes(codes + (half * kRows + r) * kCodeBytes + 32 * i);
          sums.Add(r, static_cast<int>(pair), weights[i][0], row);
          sums.Add(r, static_cast<int>(pair) + 1, weights[i][1], row);
        }
      }
    }
    codes += 2 * kRows * kCodeBytes;
    lines += to_lines;
    tables += to_tables;
    to_lines = kTwoStepsBytesW4 - to_lines;
    to_tables = kTwoStepsBytesW4 - to_tables;
    ahead += (kInTurns ? 1 : kOutputs) * kLineBytes;
    // Without this GCC 12 computes most addresses of a step anew. Cycles for 32 weights of w4 and a row (AMD Zen 4,
    // from L2): 2.22 -> 2.14 with one row, 1.72 -> 1.67 with four.
    asm("" : "+r"(lines), "+r"(tables), "+r"(ahead), "+r"(codes));
  }
  End<kFetch>(part, first, sums);
}

// All 16 outputs in one function: with 1 to 4 rows, matrices of 256 inputs are 10 to 20 % faster than with a call for
// each tile (AMD Zen 3, from L2).
template <int kRows, int kOutputs, Ahead kFetch>
[[gnu::noinline]] void PanelByBytes(const Part& part) {
  for (int64_t o = 0; o < kPanelOutputs; o += kOutputs) SumBytes<kRows, kOutputs, kFetch>(part, o);
}
template <int kRows, int kOutputs, Ahead kFetch>
[[gnu::noinline]] void PanelByNibbles(const Part& part) {
  for (int64_t o = 0; o < kPanelOutputs; o += kOutputs) SumNibbles<kRows, kOutputs, kFetch>(part, o);
}

// Expands `steps` steps of a w4 panel, from step `first` on, to bytes of weight + 128, [2 steps][16][64]. Two outputs
// share a table.
[[gnu::noinline]] void Expand(const PackedMatmulArgs& args, const uint8_t* panel, int64_t first, int64_t steps,
                              uint8_t* to) {
  for (int64_t s = first; s < first + steps; ++s, to += 2 * kChunkBytes) {
    const uint8_t *codes = panel + CodesAtW4(s), *tables = panel + TablesAtW4(s);
    for (int64_t pair = 0; pair < kPanelOutputs; pair += 2) {
      const __m256i low = Entries(args.dictionary, tables, pair, 0), high = Entries(args.dictionary, tables, pair, 1);
      for (int64_t part = 0; part < 2 * kLineBytes; part += 32) {
        const __m256i line = Load(codes + pair * kLineBytes + part);
        uint8_t* at = to + pair * kLineBytes + part;
        _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm256_shuffle_epi8(low, Nibbles(line, 0)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(at + kChunkBytes), _mm256_shuffle_epi8(high, Nibbles(line, 1)));
      }
    }
  }
}

using PanelFunction = void (*)(const Part& part);

// The function for a block of 1 .. 4 rows.
template <Ahead kFetch>
PanelFunction ByBytes(int64_t rows) {
  static constexpr PanelFunction kFunctions[] = {PanelByBytes<1, 4, kFetch>, PanelByBytes<2, 4, kFetch>,
                                                 PanelByBytes<3, 4, kFetch>, PanelByBytes<4, 2, kFetch>};
  return kFunctions[rows - 1];
}
template <Ahead kFetch>
PanelFunction ByNibbles(int64_t rows) {
  static constexpr PanelFunction kFunctions[] = {PanelByNibbles<1, 4, kFetch>, PanelByNibbles<2, 4, kFetch>,
                                                 PanelByNibbles<3, 2, kFetch>, PanelByNibbles<4, 2, kFetch>};
  return kFunctions[rows - 1];
}

// next: the lines of the next panel that are fetched beside the first block's products.
template <bool kW4>
void MultiplyPanel(const PackedMatmulArgs& args, const uint8_t* panel, const uint8_t* next, int32_t* sums) {
  alignas(64) uint8_t expanded[kW4 ? 2 * kPartSteps * kChunkBytes : kLineBytes];
  const bool many = args.num_blocks > 1, expand = kW4 && many;
  const int64_t part_steps = many ? kPartSteps : kFewRows * kPartSteps / args.code_rows & ~int64_t{1};
  for (int64_t step = 0; step < args.steps; step += part_steps) {
    const int64_t steps = args.steps - step < part_steps ? args.steps - step : part_steps;
    if (expand) Expand(args, panel, step, steps, expanded);
    Part part{.weights = expand ? expanded : panel + (kW4 ? CodesAtW4(step) : 2 * step * kChunkBytes),
              .tables = panel + TablesAtW4(step),
              .dictionary = args.dictionary,
              .chunks = 2 * steps,
              .ahead = next + step * kPanelOutputs * (kW4 ? 1 : 2) * kLineBytes,
              .later = args.steps > kFewSteps ? kLater<kW4> : 0,
              .add = step > 0};
    for (int64_t b = 0; b < args.num_blocks; ++b) {
      const RowBlock& block = args.blocks[b];
      part.codes = block.codes + 2 * step * block.rows * kCodeBytes;
      part.sums = sums + block.first * kPanelOutputs;
      const PanelFunction run = kW4 && !expand ? ByNibbles<Ahead::kNibbles>(block.rows)
                                : b > 0        ? ByBytes<Ahead::kNothing>(block.rows)
                                : kW4          ? ByBytes<Ahead::kNibbles>(block.rows)
                                : many         ? ByBytes<Ahead::kBytes>(block.rows)
                                               : ByBytes<Ahead::kBytesToL1>(block.rows);
      run(part);
    }
  }
}

// Multiplies four panels in turns. next: the four panels after them.
template <bool kW4>
void MultiplyInTurns(const PackedMatmulArgs& args, const uint8_t* panels, const uint8_t* next,
                     int32_t (*sums)[kTurnRows * kPanelOutputs]) {
  constexpr int64_t kTurnSteps = kTurnLines / kPanelOutputs / (kW4 ? 1 : 2);
  const bool expand = kW4 && args.num_blocks > 1;
  const auto codes_at = [](int64_t step) { return kW4 ? CodesAtW4(step) : 2 * step * kChunkBytes; };
  alignas(64) uint8_t expanded[kW4 ? 2 * kTurnSteps * kChunkBytes : kLineBytes];
  alignas(32) __m256i lanes[kTurnPanels][kTurnRows * kPanelOutputs];
  for (int64_t step = 0; step < args.steps; step += kTurnSteps) {
    const int64_t left = args.steps - step, later = left > kTurnSteps ? step + kTurnSteps : 0;
    const int64_t steps = left < kTurnSteps ? left : kTurnSteps;
    const uint8_t* ahead = later > 0 ? panels : next;
    Part part{.dictionary = args.dictionary,
              .chunks = 2 * steps,
              .ahead = ahead + codes_at(later),
              .add = step > 0,
              .between = args.panel_bytes,
              .last = left <= kTurnSteps};
    for (int64_t t = 0; t < kTurnPanels; ++t) {
      if (kW4) FetchToL1(ahead + t * args.panel_bytes + TablesAtW4(later));
      const uint8_t* panel = panels + t * args.panel_bytes;
      if (expand) Expand(args, panel, step, steps, expanded);
      part.weights = expand ? expanded : panel + codes_at(step);
      part.tables = panel + TablesAtW4(step);
      part.turn = t;
      for (int64_t b = 0; b < args.num_blocks; ++b) {
        const RowBlock& block = args.blocks[b];
        part.codes = block.codes + 2 * step * block.rows * kCodeBytes;
        part.sums = sums[t] + block.first * kPanelOutputs;
        part.lanes = lanes[t] + block.first * kPanelOutputs;
        const PanelFunction run = kW4 && !expand ? ByNibbles<Ahead::kInTurns>(block.rows)
                                  : b > 0        ? ByBytes<Ahead::kNothingInTurns>(block.rows)
                                  : kW4          ? ByBytes<Ahead::kNibblesInTurns>(block.rows)
                                                 : ByBytes<Ahead::kInTurns>(block.rows);
        run(part);
      }
    }
  }
}

// Multiplies panels by fours, in turns. Returns the first panel that is left over.
template <bool kW4>
int64_t MultiplyFours(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(32) int32_t sums[kTurnPanels][kTurnRows * kPanelOutputs];
  int64_t p = panel_begin;
  for (; p + kTurnPanels <= panel_end; p += kTurnPanels) {
    const uint8_t *panels = args.panels + p * args.panel_bytes, *after = panels + kTurnPanels * args.panel_bytes;
    const uint8_t* next = p + 2 * kTurnPanels <= panel_end ? after : args.next != nullptr ? args.next : panels;
    MultiplyInTurns<kW4>(args, panels, next, sums);
    for (int64_t t = 0; t < kTurnPanels; ++t) FinishPanel(args, p + t, sums[t]);
  }
  return p;
}

template <bool kW4>
void Multiply(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(32) int32_t sums[kMaxCodeRows * kPanelOutputs];
  // The first lines of the next panel are fetched here: those that are not fetched beside products.
  const int64_t first = args.panel_bytes - kPanelOutputs * args.steps * kLineBytes * (kW4 ? 1 : 2);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    const uint8_t* next = p + 1 < panel_end ? panel + args.panel_bytes : args.next != nullptr ? args.next : panel;
    for (int64_t i = 0; i < first; i += kLineBytes) Fetch(next + i);
    MultiplyPanel<kW4>(args, panel, next + first, sums);
    FinishPanel(args, p, sums);
  }
}

void MultiplyAll(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.type == PackedType::kW4) {
    Multiply<true>(args, panel_begin, panel_end);
  } else {
    Multiply<false>(args, panel_begin, panel_end);
  }
}

void MultiplyAllInTurns(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.code_rows <= kTurnRows && args.steps > kFewSteps) {
    panel_begin = args.type == PackedType::kW4 ? MultiplyFours<true>(args, panel_begin, panel_end)
                                               : MultiplyFours<false>(args, panel_begin, panel_end);
  }
  MultiplyAll(args, panel_begin, panel_end);
}

int64_t PlanRowBlocks(int64_t code_rows, int64_t* sizes) {
  if (code_rows <= 0) return 0;
  const int64_t blocks = code_rows <= kFewRows ? 1 : (code_rows + kManyRows - 1) / kManyRows;
  for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
  return blocks;
}
