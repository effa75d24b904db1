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
  int64_t output, outputs;  // of the panel
  const int8_t* activations;
  int64_t chunk_stride;
  int64_t code_row;
  int64_t ahead_lines;  // of the next panel fetched per step
};

constexpr int64_t kMaxPasses = 5 * kMaxCodeRows / 4;

struct Passes {
  Pass pass[kMaxPasses];
  int64_t count = 0;
};

template <bool kW4, int kAhead>
TileFunction TileOfFour(int64_t rows) {
  switch (rows) {
    case 4: return Tile4x4<kW4, kAhead, true>;
    case 5: return Tile4x5<kW4, kAhead, true>;
    case 6: return Tile4x6<kW4, kAhead, true>;
    default: return Tile4x7<kW4, kAhead, true>;
  }
}

template <bool kW4>
void AddPass(Passes& passes, TileFunction function, const RowBlock& block, int64_t row, int64_t output, int64_t outputs,
             int64_t ahead) {
  passes.pass[passes.count++] = {function,
                                 output,
                                 outputs,
                                 block.codes + row * kLineBytes,
                                 block.rows * kLineBytes,
                                 block.first + row,
                                 ahead * (kW4 ? 1 : 2)};
}

template <bool kW4>
void AddTileOfFour(Passes& passes, const RowBlock& block, int64_t row, int64_t rows, int64_t output, int64_t ahead) {
  const TileFunction function = ahead == 4   ? TileOfFour<kW4, 4>(rows)
                                : ahead == 2 ? TileOfFour<kW4, 2>(rows)
                                : ahead == 1 ? TileOfFour<kW4, 1>(rows)
                                             : TileOfFour<kW4, 0>(rows);
  AddPass<kW4>(passes, function, block, row, output, 4, ahead);
}

// The passes over one panel; blocks as PlanRowBlocksAvx512 cuts them.
template <bool kW4>
void PlanPasses(const PackedMatmulArgs& args, Passes& passes) {
  const RowBlock& first = args.blocks[0];
  if (args.num_blocks == 1 && first.rows <= 3) {
    const TileFunction function = first.rows == 1   ? Tile16x1<kW4, 16, true>
                                  : first.rows == 2 ? Tile8x2<kW4, 8, true>
                                                    : Tile8x3<kW4, 8, true>;
    const int64_t outputs = first.rows == 1 ? 16 : 8;
    for (int64_t o = 0; o < kPanelOutputs; o += outputs) AddPass<kW4>(passes, function, first, 0, o, outputs, outputs);
    return;
  }
  if (args.num_blocks == 1 && first.rows == 8) {
    for (int64_t o = 0; o < 12; o += 3) AddPass<kW4>(passes, Tile3x8<kW4, 3, true>, first, 0, o, 3, 3);
    AddTileOfFour<kW4>(passes, first, 0, 4, 12, 2);
    AddTileOfFour<kW4>(passes, first, 4, 4, 12, 2);
    return;
  }
  for (int64_t o = 0; o < kPanelOutputs; o += 4) {
    int64_t left = 4;
    for (int64_t b = 0; b < args.num_blocks; ++b) {
      const int64_t share = (left + args.num_blocks - b - 1) / (args.num_blocks - b);
      const int64_t ahead = share == 3 ? 4 : share;
      AddTileOfFour<kW4>(passes, args.blocks[b], 0, args.blocks[b].rows, o, ahead);
      left -= ahead;
    }
  }
}

constexpr int64_t kNearBytes = 2048;  // of a tile's own lines, to L1

// Without what moves from panel to panel.
template <bool kW4>
Tile TileOf(const PackedMatmulArgs& args, const Pass& pass, const uint8_t* panel, const uint8_t* after) {
  constexpr int64_t kStepBytes = kPanelOutputs * kLineBytes * (kW4 ? 1 : 2);
  const int64_t own_bytes = kStepBytes / kPanelOutputs * pass.outputs;
  const int64_t near_steps = (kNearBytes + own_bytes - 1) / own_bytes;
  Tile tile;
  tile.codes = panel + args.code_offset + pass.output * kLineBytes;
  tile.tables = panel + pass.output * 2;
  tile.dictionary = args.dictionary;
  tile.activations = pass.activations;
  tile.chunk_stride = pass.chunk_stride;
  tile.last_near = after;
  if (args.steps > near_steps) {
    tile.steps = args.steps - near_steps;
    tile.near = tile.codes + near_steps * kStepBytes;
    tile.last_steps = near_steps;
  } else {
    tile.steps = args.steps;
    tile.near = after;
    tile.last_steps = 0;
  }
  tile.ahead_step = pass.ahead_lines * kLineBytes;
  return tile;
}

// While a panel is multiplied, the next one comes from memory, a share with each pass. (A constant distance of 16 KB is
// worse where several tiles walk over one panel: 178 against 146 ms for 6 rows of a 7B model on AMD Zen 4.)
template <bool kW4>
void Multiply(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(64) int32_t sums[kMaxCodeRows * kPanelOutputs];
  Passes passes;
  PlanPasses<kW4>(args, passes);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    const uint8_t* next_panel = p + 1 < panel_end ? panel + args.panel_bytes : panel;
    for (int64_t i = 0; i < args.code_offset; i += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(next_panel + i), _MM_HINT_T1);
    }
    const uint8_t* ahead = next_panel + args.code_offset;
    for (int64_t k = 0; k < passes.count; ++k) {
      const Pass& pass = passes.pass[k];
      const uint8_t* after = k + 1 < passes.count ? panel + args.code_offset + passes.pass[k + 1].output * kLineBytes
                                                  : next_panel + args.code_offset;
      Tile tile = TileOf<kW4>(args, pass, panel, after);
      tile.ahead = ahead;
      tile.sums = sums + pass.code_row * kPanelOutputs + pass.output;
      pass.function(tile);
      ahead += tile.ahead_step * args.steps;
    }
    FinishPanel<1>(args, p, sums);
  }
}

}  // namespace

void PackedMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.code_rows == 0) return;
  if (args.is_w4) {
    Multiply<true>(args, panel_begin, panel_end);
  } else {
    Multiply<false>(args, panel_begin, panel_end);
  }
}

int64_t PlanRowBlocksAvx512(int64_t code_rows, int64_t* sizes) {
  if (code_rows <= 0) return 0;
  const int64_t blocks = code_rows <= 8 ? 1 : (code_rows + 6) / 7;
  for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
  return blocks;
}

}  // namespace hydrant::kernels
