// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes with AVX-512 VNNI and VBMI, from quads or octets (packed.h). A panel is one tile
// of 16 outputs by up to 10 code rows, which takes all inputs from one stream.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/avx512/entries.h"
#include "kernels/packed.h"

namespace hydrant::kernels {
namespace {

// What a block of rows fetches while it goes through a panel: 0, nothing of the next panel; kWholeStream; or n = 4, 2
// or 1 lines of the next panel per 8 of this one.
//
// kWholeStream is for an only block. It fetches lines 8, 16 and 32 KB ahead from memory to L2, since a single prefetch
// is now and then late or lost (7B w4a8: 93 ms with 16 KB alone and 87 ms with all three for 1 row; 133 and 130 ms for
// 8 rows). For few rows it also fetches 64 KB ahead (products alone, w4a8 at 50 GB/s: 7 % faster with 1 row, the same
// with 6 rows). It fetches 4 KB ahead to L1, but not to stay there: a line is used once, the inputs with every panel
// (7B w8a8 at 57 GB/s: 134 -> 120 ms with 4 rows, 154 -> 136 ms with 8).
//
// Several blocks fetch a part of the next panel each, so that memory works all the time. With octets, which each block
// reads again, they fetch 2 KB ahead to L1 as well (7B w4a8: 184 -> 181 ms with 11 rows, 195 -> 190 with 12, 253 -> 251
// with 16). With quads they do not (w8a8, 16 rows: 283 to 329 ms by parts, 315 to 320 with lines to L1 as well, and 333
// to 342 where the first block fetches the whole stream; in another hour 254 by parts, and 284 with lines to L1).
constexpr int kWholeStream = 8;

// The other way, "in turns" (CpuFeatures::reads_in_turns): the only block goes through some steps of four panels, one
// panel after the other. Meanwhile it fetches the steps behind them to L1, a line of each panel at a time.
constexpr int kInTurns = 16;
constexpr int kTurnPanels = 4;
constexpr int64_t kTurnBytes = 4096;  // of a panel in its turn; two turns of four panels fit L1

// Most steps of matrices with few inputs, which come in order from L2 or L3. Quads are then fetched best by hardware,
// octets by these prefetches. Share of the multiply peak, by hardware and with prefetches (15 MB, two cores):
//   quads    1 row   0.31, 0.21      4 rows   0.84, 0.66
//   octets   1 row   0.18, 0.28      8 rows   0.66, 0.76
constexpr int64_t kFewSteps = 6;

#include "kernels/avx512/octet_tiles.h"
#include "kernels/avx512/packed_epilogue.h"
#include "kernels/avx512/quad_tiles.h"

constexpr int64_t kMaxBlockRows = 10;

// Fetches the row scales of a panel and its outputs, a line of each row that is far from the next row's. The lines of
// one block's rows come while its products are computed: the lines of 64 rows at once would wait for each other.
[[gnu::always_inline]] inline void FetchOutputs(const PackedMatmulArgs& args, int64_t panel, const RowBlock& block) {
  const int planes = args.two_planes ? 1 : 0;  // as a power of two
  const int64_t first = panel * kPanelOutputs;
  _mm_prefetch(reinterpret_cast<const char*>(args.row_scales + first), _MM_HINT_T0);
  for (int64_t r = block.first >> planes; r < (block.first + block.rows) >> planes; ++r) {
    _mm_prefetch(reinterpret_cast<const char*>(args.out + r * args.out_stride + first), _MM_HINT_T0);
  }
}

// The next piece of a PrefetchList. Without one, a line that is in L2 already.
[[gnu::always_inline]] inline const uint8_t* TakePiece(const PackedMatmulArgs& args, const uint8_t* panel) {
  PrefetchList* later = args.later;
  if (later == nullptr || later->count == 0) return panel;
  if (later->wait > 0) {
    --later->wait;
    return panel;
  }
  --later->count;
  return *later->pieces++;
}

// Multiplies a panel by a block of rows. ahead: lines of the next panel. later: what TakePiece gives. sums: [rows of
// the block][16].
using TileFunction = void (*)(const PackedMatmulArgs& args, const uint8_t* panel, const int8_t* codes,
                              const uint8_t* ahead, const uint8_t* later, int32_t* sums);

template <bool kOctets, int kRows, int kFetch>
void SumTile(const PackedMatmulArgs& args, const uint8_t* panel, const int8_t* codes, const uint8_t* ahead,
             const uint8_t* later, int32_t* sums) {
  if constexpr (kOctets) {
    SumOctets<kRows, kFetch>(args, panel, 0, args.steps, codes, ahead, later, sums);
  } else {
    __m512i vectors[kRows] = {};
    AddQuads<kRows, kFetch>(args.steps, panel, codes, ahead, 0, vectors);
#pragma GCC unroll 10
    for (int r = 0; r < kRows; ++r) _mm512_store_si512(sums + r * kPanelOutputs, vectors[r]);
  }
}

// Multiplies panels by the only block of rows. The sums of quads become outputs without passing through memory. (The
// embedded model's products alone, w8a8, two threads, in place of a tile function and FinishPanel: 108 -> 97 us with 2
// rows, 132 -> 120 us with 3, 157 -> 150 us with 4.)
using PanelsFunction = void (*)(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);

template <bool kOctets, int kRows, int kFetch>
void FinishPanels(const PackedMatmulArgs& call, int64_t panel_begin, int64_t panel_end) {
  const PackedMatmulArgs args = call;  // a copy, so that the compiler knows that no store to an output changes it
  const RowBlock block = args.blocks[0];
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    if (args.steps > kFewSteps) FetchOutputs(args, p, block);
    const uint8_t *panel = args.panels + p * args.panel_bytes, *next = panel + args.panel_bytes;
    __m512i sums[kRows];
    if constexpr (kOctets) {
      alignas(64) int32_t raw[kRows * kPanelOutputs];
      const uint8_t* later = kRows >= kPrefetchRows ? TakePiece(args, panel) : panel;
      SumOctets<kRows, kFetch>(args, panel, 0, args.steps, block.codes, next, later, raw);
#pragma GCC unroll 10
      for (int r = 0; r < kRows; ++r) sums[r] = SumOf(args.excess, raw, r);
    } else {
#pragma GCC unroll 10
      for (int r = 0; r < kRows; ++r) sums[r] = _mm512_set1_epi32(-args.excess[r]);
      AddQuads<kRows, kFetch>(args.steps, panel, block.codes, next, 0, sums);
    }
    const PanelOutputs outputs(args, p);
#pragma GCC unroll 10
    for (int r = 0; r < kRows; ++r) outputs.Finish(r, _mm512_cvtepi32_ps(sums[r]));
  }
}

// Adds `steps` steps of a panel, from step `step` on, to its sums. ahead: lines of the first panel's next turn.
template <bool kOctets, int kRows>
[[gnu::always_inline]] inline void TakeTurn(const PackedMatmulArgs& args, const uint8_t* panel, int64_t step,
                                            int64_t steps, const uint8_t* ahead, __m512i* sums) {
  const int8_t* codes = args.blocks[0].codes;
  if constexpr (kOctets) {
    alignas(64) int32_t raw[kRows * kPanelOutputs];
    SumOctets<kRows, kInTurns>(args, panel, step, steps, codes, ahead, nullptr, raw);
#pragma GCC unroll 10
    for (int r = 0; r < kRows; ++r) sums[r] = _mm512_add_epi32(sums[r], _mm512_load_si512(raw + r * kPanelOutputs));
  } else {
    AddQuads<kRows, kInTurns>(steps, panel + step * kQuadStepBytes, codes + step * kStepInputs * kRows, ahead,
                              args.panel_bytes, sums);
  }
}

// FinishPanels for four panels at a time, in turns. Panels that are left over go through FinishPanels.
template <bool kOctets, int kRows>
void FinishPanelsInTurns(const PackedMatmulArgs& call, int64_t panel_begin, int64_t panel_end) {
  constexpr int64_t kStepBytes = kOctets ? kOctetStepBytes : kQuadStepBytes, kTurnSteps = kTurnBytes / kStepBytes;
  const PackedMatmulArgs args = call;
  int64_t p = panel_begin;
  for (; p + kTurnPanels <= panel_end; p += kTurnPanels) {
    const uint8_t *panels = args.panels + p * args.panel_bytes, *after = panels + kTurnPanels * args.panel_bytes;
    const uint8_t* next = p + 2 * kTurnPanels <= panel_end ? after : args.next != nullptr ? args.next : panels;
    __m512i sums[kTurnPanels][kRows];
    for (auto& of_panel : sums) {
      for (int r = 0; r < kRows; ++r) of_panel[r] = _mm512_set1_epi32(-args.excess[r]);
    }
    for (int64_t step = 0; step < args.steps; step += kTurnSteps) {
      const int64_t left = args.steps - step, steps = left < kTurnSteps ? left : kTurnSteps;
      const uint8_t* ahead = left > kTurnSteps ? panels + (step + kTurnSteps) * kStepBytes : next;
      ahead += args.code_offset;
      for (int64_t t = 0; t < kTurnPanels; ++t) {
        const uint8_t* lines = ahead + t * steps * (kStepBytes / kTurnPanels);
        TakeTurn<kOctets, kRows>(args, panels + t * args.panel_bytes, step, steps, lines, sums[t]);
      }
    }
    for (int64_t t = 0; t < kTurnPanels; ++t) {
      const PanelOutputs outputs(args, p + t);
#pragma GCC unroll 10
      for (int r = 0; r < kRows; ++r) outputs.Finish(r, _mm512_cvtepi32_ps(sums[t][r]));
    }
  }
  if (p < panel_end) FinishPanels<kOctets, kRows, kWholeStream>(args, p, panel_end);
}

template <bool kOctets>
PanelsFunction InTurnsFor(int64_t rows) {
  constexpr PanelsFunction kFunctions[kMaxBlockRows] = {
      FinishPanelsInTurns<kOctets, 1>, FinishPanelsInTurns<kOctets, 2>, FinishPanelsInTurns<kOctets, 3>,
      FinishPanelsInTurns<kOctets, 4>, FinishPanelsInTurns<kOctets, 5>, FinishPanelsInTurns<kOctets, 6>,
      FinishPanelsInTurns<kOctets, 7>, FinishPanelsInTurns<kOctets, 8>, FinishPanelsInTurns<kOctets, 9>,
      FinishPanelsInTurns<kOctets, 10>};
  return kFunctions[rows - 1];
}

// Both functions for one number of rows.
struct RowsFunctions {
  TileFunction tile;
  PanelsFunction panels;
};

template <bool kOctets, int kRows, int kFetch>
constexpr RowsFunctions FunctionsOf() {
  constexpr bool kAlone = kFetch == kWholeStream || (kFetch == 0 && !kOctets);  // what PlanPasses gives an only block
  if constexpr (kAlone) return {SumTile<kOctets, kRows, kFetch>, FinishPanels<kOctets, kRows, kFetch>};
  return {SumTile<kOctets, kRows, kFetch>, nullptr};
}

template <bool kOctets, int kFetch>
RowsFunctions FunctionsFor(int64_t rows) {
  constexpr RowsFunctions kFunctions[kMaxBlockRows] = {
      FunctionsOf<kOctets, 1, kFetch>(), FunctionsOf<kOctets, 2, kFetch>(), FunctionsOf<kOctets, 3, kFetch>(),
      FunctionsOf<kOctets, 4, kFetch>(), FunctionsOf<kOctets, 5, kFetch>(), FunctionsOf<kOctets, 6, kFetch>(),
      FunctionsOf<kOctets, 7, kFetch>(), FunctionsOf<kOctets, 8, kFetch>(), FunctionsOf<kOctets, 9, kFetch>(),
      FunctionsOf<kOctets, 10, kFetch>()};
  return kFunctions[rows - 1];
}

template <bool kOctets>
RowsFunctions FunctionsFor(int64_t fetch, int64_t rows) {
  switch (fetch) {
    case 0: return FunctionsFor<kOctets, 0>(rows);
    case 1: return FunctionsFor<kOctets, 1>(rows);
    case 2: return FunctionsFor<kOctets, 2>(rows);
    case 4: return FunctionsFor<kOctets, 4>(rows);
    default: return FunctionsFor<kOctets, kWholeStream>(rows);
  }
}

struct Pass {
  RowsFunctions functions;
  int64_t ahead;  // where in the next panel its fetches begin
};

void PlanPasses(const PackedMatmulArgs& args, Pass* passes) {
  const bool octets = args.type == PackedType::kOctets;
  const int64_t blocks = args.num_blocks, line_bytes = (args.panel_bytes - args.code_offset) / 8;
  int64_t left = octets || args.steps > kFewSteps ? 8 : 0, ahead = args.panel_bytes + args.code_offset;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t share = (left + blocks - b - 1) / (blocks - b), fetch = share == 3 ? 4 : share;
    const int64_t rows = args.blocks[b].rows;
    passes[b] = {octets ? FunctionsFor<true>(fetch, rows) : FunctionsFor<false>(fetch, rows), ahead};
    left -= fetch;
    ahead += line_bytes * fetch;
  }
}

}  // namespace

void PackedMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  Pass passes[kMaxCodeRows];
  PlanPasses(args, passes);
  if (args.num_blocks == 1 && !args.two_planes) return passes[0].functions.panels(args, panel_begin, panel_end);
  alignas(64) int32_t sums[kMaxCodeRows * kPanelOutputs];
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    for (int64_t b = 0; b < args.num_blocks; ++b) {
      const RowBlock& block = args.blocks[b];
      FetchOutputs(args, p, block);
      const uint8_t* later = b == 0 && args.type == PackedType::kOctets ? TakePiece(args, panel) : panel;
      passes[b].functions.tile(args, panel, block.codes, panel + passes[b].ahead, later,
                               sums + block.first * kPanelOutputs);
    }
    FinishPanel(args, p, sums);
  }
}

void PackedMatmulInTurnsAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.num_blocks != 1 || args.two_planes || args.steps <= kFewSteps) {
    return PackedMatmulAvx512(args, panel_begin, panel_end);
  }
  const bool octets = args.type == PackedType::kOctets;
  const PanelsFunction run = octets ? InTurnsFor<true>(args.code_rows) : InTurnsFor<false>(args.code_rows);
  run(args, panel_begin, panel_end);
}

int64_t PlanRowBlocksAvx512(int64_t code_rows, int64_t* sizes) {
  if (code_rows <= 0) return 0;
  const int64_t blocks = (code_rows + kMaxBlockRows - 1) / kMaxBlockRows;
  for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
  return blocks;
}

}  // namespace hydrant::kernels
