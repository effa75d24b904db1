// SPDX-License-Identifier: Apache-2.0
// One table of kernels: function pointers, and how they want their operands. Each folder of a CPU target defines its
// own as constant data (targets.h). Entries are serial and work on a range or a row; ops/ checks, splits and calls.
// Plain data: target files include this.
#pragma once

#include <cstdint>

#include "kernels/arguments.h"
#include "kernels/attention_arguments.h"
#include "kernels/peak.h"

namespace hydrant::kernels {

struct KernelTable {
  const char* name;    // of the table: tests and measurements tell them apart by it
  const char* target;  // of the CPU target that it belongs to, as users name it

  void (*matmul)(const MatmulArgs& args, int64_t output_begin, int64_t output_end);
  // Number of rows that a vector holds where matmul takes one input of many rows at a time (lanes), 0: never; and the
  // fewest rows for which lanes pay.
  int64_t row_lanes, min_row_lanes;
  // Packs rows <= row_lanes rows of x, `stride` apart, as [inputs][row_lanes].
  void (*pack_lanes)(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed);
  // Products with low-bit weights, for a range of panels of 16 outputs.
  void (*packed_matmul)(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
  void (*quantize_row)(const QuantizeArgs& args);
  // Cuts code rows into the blocks that packed_matmul takes together. Writes the blocks' sizes (there must be room for
  // kMaxCodeRows) and returns their number.
  int64_t (*plan_row_blocks)(int64_t code_rows, int64_t* sizes);
  bool reads_lines;        // packed_matmul takes w8 and w4
  bool reads_interleaved;  // packed_matmul takes quads and octets
  bool quad_codes;         // it wants RowBlock::codes as quads,
  bool sign_codes;         // or as signs; if neither, as lines
  // Low-bit products go through tiles. Then a call takes kMaxCodeRows code rows, threads share out pairs of panels, and
  // a matmul is not cut into parts with attention between them.
  bool multiplies_by_tiles;
  // Whether packed_matmul fetches PackedMatmulArgs::later while it multiplies octets by kPrefetchRows rows or more.
  bool fetches_lists;
  // Where quad_codes: packs 64 codes of each of up to 16 rows, `stride` bytes apart, to [16 quads][16 rows][4].
  void (*pack_quads)(const int8_t* lines, int64_t stride, int64_t rows, int8_t* tile);
  void (*attention)(const AttentionArgs& args);
  bool attends_by_tiles;  // over bf16 keys and values, in an order of additions of its own
  void (*store_kv)(const StoreKvArgs& args);
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*rope_table)(float position, const float* inv_freq, int64_t half, float* cos, float* sin);
  void (*rope)(float* head, const float* cos, const float* sin, int64_t half);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*residual_silu)(const float* residual, const float* linear, int64_t n, float* out);
  void (*bias_gelu)(const float* x, const float* bias, int64_t n, float* out);
  // out[i] of the numbers from x[kExpSumScores * i] on, kExpSumScores of them or what is left. NaN and -infinity add
  // nothing as long as there is a number beside them.
  void (*exp_sums)(const float* x, int64_t n, ExpSum* out);
  // out[i] = from[i], widened.
  void (*widen)(const uint8_t* from, FloatType type, int64_t n, float* out);
  // Standard Gumbel noise for tokens 0..vocab-1 (generic/noise_inl.h has the definition).
  void (*gumbel_row)(uint64_t seed, uint32_t stream, uint32_t position, int64_t vocab, float* out);
  const PeakEntries* peak;  // for measuring only

  bool Reads(PackedType type) const {
    return LayoutOf(type) == PackedLayout::kInterleaved ? reads_interleaved : reads_lines;
  }
  // Bytes of 64 inputs of a RowBlock.
  int64_t BlockBytes(const RowBlock& block) const {
    return (quad_codes ? kQuadRows : block.rows) * kLineBytes * (sign_codes ? 2 : 1);
  }
  // The layout of packed weights that packed_matmul reads.
  PackedLayout layout() const { return reads_lines ? PackedLayout::kLines : PackedLayout::kInterleaved; }
};

}  // namespace hydrant::kernels
