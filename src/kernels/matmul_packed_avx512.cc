// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes with AVX-512 VNNI and VBMI.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/matmul_packed_avx512_tiles.h"
#include "kernels/packed_epilogue_avx512.h"

using TileFunction = void (*)(const Tile& tile);

// One pass: some outputs of a panel by one block of rows.
struct Pass {
  TileFunction function;
  int64_t output;  // the first, of the panel
  const int8_t* activations;
  int64_t chunk_stride;
  int64_t code_row;
  int64_t ahead_lines;  // of the next panel fetched per step
  int64_t near_steps;   // by which its own lines are fetched ahead
};

constexpr int64_t kMaxPasses = 5 * kMaxCodeRows / 4;

struct Passes {
  Pass pass[kMaxPasses];
  int64_t count = 0;
};

// In a plan of several blocks, which is known by its kAhead, w4 is multiplied so long that lines come from L2 in time
// without prefetches (64 rows on a core that shares with a busy neighbour: .77 -> .80 of peak, alone .93 -> .94). w8
// needs them.
template <bool kW4, int kAhead>
TileFunction TileOfFour(int64_t rows) {
  constexpr bool kNear = !kW4 || kAhead == 4;
  switch (rows) {
    case 1: return Tile4x1<kW4, kAhead, kNear>;
    case 2: return Tile4x2<kW4, kAhead, kNear>;
    case 3: return Tile4x3<kW4, kAhead, kNear>;
    case 4: return Tile4x4<kW4, kAhead, kNear>;
    case 5: return Tile4x5<kW4, kAhead, kNear>;
    case 6: return Tile4x6<kW4, kAhead, kNear>;
    default: return Tile4x7<kW4, kAhead, kNear>;
  }
}

template <bool kW4>
void AddPass(Passes& passes, TileFunction function, const RowBlock& block, int64_t row, int64_t output, int64_t outputs,
             int64_t ahead) {
  constexpr int64_t kNearBytes = kW4 ? 4096 : 2048;
  const int64_t own_bytes = kLineBytes * (kW4 ? 1 : 2) * outputs;  // per step
  passes.pass[passes.count++] = {function,
                                 output,
                                 block.codes + row * kLineBytes,
                                 block.rows * kLineBytes,
                                 block.first + row,
                                 ahead * (kW4 ? 1 : 2),
                                 (kNearBytes + own_bytes - 1) / own_bytes};
}

template <bool kW4>
void AddTileOfFour(Passes& passes, const RowBlock& block, int64_t output, int64_t ahead) {
  const TileFunction function = ahead == 4   ? TileOfFour<kW4, 4>(block.rows)
                                : ahead == 2 ? TileOfFour<kW4, 2>(block.rows)
                                : ahead == 1 ? TileOfFour<kW4, 1>(block.rows)
                                             : TileOfFour<kW4, 0>(block.rows);
  AddPass<kW4>(passes, function, block, 0, output, 4, ahead);
}

// Wider tiles for few rows: less to add up at the end of a tile, which counts where inputs are few, but from memory
// slower than 4 outputs (1 row of w4: 10.0 against 8.4 cycles a line). They read in order, and matrices of few inputs
// come from L2 or L3, so hardware prefetches do best (8 MB of w8, 1 row: 2.9 cycles a line, with all of ours 4.0).
template <bool kW4>
void PlanWidePasses(const RowBlock& block, Passes& passes) {
  const TileFunction function = block.rows == 1   ? Tile16x1<kW4, 0, false>
                                : block.rows == 2 ? Tile8x2<kW4, 0, true>
                                                  : Tile8x3<kW4, 0, true>;
  const int64_t outputs = block.rows == 1 ? 16 : 8;
  for (int64_t o = 0; o < kPanelOutputs; o += outputs) AddPass<kW4>(passes, function, block, 0, o, outputs, 0);
}

constexpr int64_t kFewSteps = 15;

// The passes over one panel; blocks as PlanRowBlocksAvx512 cuts them.
template <bool kW4>
void PlanPasses(const PackedMatmulArgs& args, Passes& passes) {
  const RowBlock& first = args.blocks[0];
  if (args.num_blocks == 1 && first.rows <= 3 && args.steps <= kFewSteps) {
    PlanWidePasses<kW4>(first, passes);
    return;
  }
  if (args.num_blocks == 1 && first.rows == 8) {
    for (int64_t o = 0; o < 12; o += 3) AddPass<kW4>(passes, Tile3x8<kW4, 3, true>, first, 0, o, 3, 3);
    AddPass<kW4>(passes, Tile4x4<kW4, 2, true>, first, 0, 12, 4, 2);
    AddPass<kW4>(passes, Tile4x4<kW4, 2, true>, first, 4, 12, 4, 2);
    return;
  }
  int64_t left = 4;  // lines of the next panel to fetch per 4 of this one
  for (int64_t b = 0; b < args.num_blocks; ++b) {
    const int64_t share = (left + args.num_blocks - b - 1) / (args.num_blocks - b);
    const int64_t ahead = share == 3 ? 4 : share;
    for (int64_t o = 0; o < kPanelOutputs; o += 4) {
      AddTileOfFour<kW4>(passes, args.blocks[b], o, ahead);
    }
    left -= ahead;
  }
}

// How many steps all passes take before any takes the next: a block's activations of them stay in L1 from tile to tile.
// w8 multiplies twice as fast as it takes lines from L2 (16 rows: 22 -> 18 cycles a line); w4 has more time for a line,
// and the sums' additions count for more, but not with 8 rows, whose codes of 4096 inputs would fill L1 (on a core that
// shares with a busy neighbour .75 -> .78 of peak, alone equal).
template <bool kW4>
int64_t StepsAtOnce(const PackedMatmulArgs& args) {
  int64_t rows = 1;
  for (int64_t b = 0; b < args.num_blocks; ++b) rows = args.blocks[b].rows > rows ? args.blocks[b].rows : rows;
  const int64_t bytes = (!kW4 ? 14 : rows == 8 ? 25 : 33) * 1024;
  const int64_t pieces = (args.steps * kStepInputs * rows + bytes - 1) / bytes;
  return (args.steps + pieces - 1) / pieces;
}

// Steps first .. first + count - 1 of a panel.
struct Piece {
  int64_t first, count;
};

// One pass over a piece; `after` is where the next begins.
template <bool kW4>
Tile TileOf(const PackedMatmulArgs& args, const Pass& pass, const uint8_t* panel, Piece piece, const uint8_t* after) {
  constexpr int64_t kStepBytes = kPanelOutputs * kLineBytes * (kW4 ? 1 : 2);
  Tile tile;
  tile.codes = panel + args.code_offset + pass.output * kLineBytes + piece.first * kStepBytes;
  tile.tables = panel + (piece.first * kPanelOutputs + pass.output) * 2;
  tile.dictionary = args.dictionary;
  tile.activations = pass.activations + piece.first * 2 * pass.chunk_stride;
  tile.chunk_stride = pass.chunk_stride;
  const bool ends_early = piece.count > pass.near_steps;
  tile.steps = ends_early ? piece.count - pass.near_steps : piece.count;
  tile.near = ends_early ? tile.codes + pass.near_steps * kStepBytes : after;
  tile.last_steps = ends_early ? pass.near_steps : 0;
  tile.last_near = after;
  tile.ahead_step = pass.ahead_lines * kLineBytes;
  return tile;
}

// sums [code_rows][16] of one piece. Returns how far `ahead` got.
template <bool kW4>
const uint8_t* SumPiece(const PackedMatmulArgs& args, const Passes& passes, const uint8_t* panel, Piece piece,
                        const uint8_t* after, const uint8_t* ahead, int32_t* sums) {
  const uint8_t* codes = panel + args.code_offset + piece.first * kPanelOutputs * kLineBytes * (kW4 ? 1 : 2);
  for (int64_t k = 0; k < passes.count; ++k) {
    const Pass& pass = passes.pass[k];
    const uint8_t* next = k + 1 < passes.count ? codes + passes.pass[k + 1].output * kLineBytes : after;
    Tile tile = TileOf<kW4>(args, pass, panel, piece, next);
    tile.ahead = ahead;
    tile.sums = sums + pass.code_row * kPanelOutputs + pass.output;
    pass.function(tile);
    ahead += tile.ahead_step * piece.count;
  }
  return ahead;
}

inline void AddSums(const int32_t* more, int64_t code_rows, int32_t* sums) {
  for (int64_t i = 0; i < code_rows * kPanelOutputs; i += kPanelOutputs) {
    _mm512_store_si512(sums + i, _mm512_add_epi32(_mm512_load_si512(sums + i), _mm512_load_si512(more + i)));
  }
}

// A panel's outputs are a line of each row, far apart: they come while its products are computed.
inline void FetchOutputs(const PackedMatmulArgs& args, int64_t panel) {
  const float* out = args.out + panel * kPanelOutputs;
  for (int64_t r = 0; r < args.code_rows / (args.two_planes ? 2 : 1); ++r, out += args.out_stride) {
    _mm_prefetch(reinterpret_cast<const char*>(out), _MM_HINT_T0);
  }
}

// While a panel is multiplied, the next one comes from memory, a share with each pass. (A constant distance of 16 KB is
// worse where several tiles walk over one panel: 178 against 146 ms for 6 rows of a 7B model on AMD Zen 4.)
template <bool kW4>
void Multiply(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(64) int32_t sums[kMaxCodeRows * kPanelOutputs], more[kMaxCodeRows * kPanelOutputs];
  Passes passes;
  PlanPasses<kW4>(args, passes);
  const int64_t steps_at_once = StepsAtOnce<kW4>(args);
  constexpr int64_t kStepBytes = kPanelOutputs * kLineBytes * (kW4 ? 1 : 2);
  // Beyond panel_end too: there this thread's next range begins, mostly.
  const int64_t num_panels = (args.outputs + kPanelOutputs - 1) / kPanelOutputs;
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    const uint8_t* next_panel = p + 1 < num_panels ? panel + args.panel_bytes : panel;
    for (int64_t i = 0; i < args.code_offset; i += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(next_panel + i), _MM_HINT_T1);
    }
    FetchOutputs(args, p);
    const uint8_t* ahead = next_panel + args.code_offset;
    for (int64_t first = 0; first < args.steps; first += steps_at_once) {
      const int64_t rest = args.steps - first;
      const Piece piece{first, rest < steps_at_once ? rest : steps_at_once};
      const uint8_t* after = piece.count < rest ? panel + args.code_offset + (first + piece.count) * kStepBytes
                                                : next_panel + args.code_offset;
      ahead = SumPiece<kW4>(args, passes, panel, piece, after, ahead, first == 0 ? sums : more);
      if (first > 0) AddSums(more, args.code_rows, sums);
    }
    FinishPanel<1>(args, p, sums);
  }
}

}  // namespace

void PackedMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.code_rows == 0) return;
  switch (args.type) {
    case PackedType::kW8: return Multiply<false>(args, panel_begin, panel_end);
    case PackedType::kW4: return Multiply<true>(args, panel_begin, panel_end);
    case PackedType::kQuads:
    case PackedType::kOctets: return SmallMatmulAvx512(args, panel_begin, panel_end);
  }
}

// At most six rows a block: 4 x 7 needs two turns over its activations, and where a busy neighbour takes part of L1
// that costs more than it saves (tiles of 32 steps, share of the multiply peak: 4 x 7 .85 to .90, 4 x 6 .91 to .93;
// alone both .95). 64 rows of 7B, w4a8, passes in turn: 1,137 -> 1,118 ms, least 1,029 -> 1,024; w8a8 1,109 -> 1,096.
int64_t PlanRowBlocksAvx512(int64_t code_rows, int64_t* sizes) {
  if (code_rows <= 0) return 0;
  const int64_t blocks = code_rows <= 8 ? 1 : (code_rows + 5) / 6;
  for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
  return blocks;
}

}  // namespace hydrant::kernels
