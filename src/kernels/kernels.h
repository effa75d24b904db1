// SPDX-License-Identifier: Apache-2.0
// The table of kernels: one struct of function pointers per CPU target, filled once by dispatch. Entries are serial and
// work on a range or a row; ops.h checks, splits and calls. A new instruction set is one table and one file per op.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/attention_arguments.h"
#include "kernels/ops.h"
#include "kernels/peak.h"

namespace hydrant::kernels {

// Of f32, bf16 and f16.
FloatType FloatTypeOf(DType dtype);

struct KernelTable {
  const char* name;  // as --cpu-target takes it

  void (*matmul)(const MatmulArgs& args, int64_t output_begin, int64_t output_end);
  // Rows per vector when matmul takes one input of many rows at a time, 0 = never; and how many rows that pays for.
  int64_t row_lanes, min_row_lanes;
  // Packs rows <= row_lanes rows of x, `stride` apart, as [inputs][row_lanes].
  void (*pack_lanes)(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed);
  // Low-bit weights. Panels of 16 outputs.
  void (*packed_matmul)(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
  void (*quantize_row)(const QuantizeArgs& args);
  // Cuts code rows into the blocks that packed_matmul takes together: writes their sizes (room for kMaxCodeRows) and
  // returns their number.
  int64_t (*plan_row_blocks)(int64_t code_rows, int64_t* sizes);
  bool reads_lines;        // packed_matmul takes w8 and w4,
  bool reads_interleaved;  // quads and octets
  bool quad_codes;         // RowBlock::codes as quads,
  bool sign_codes;         // or as signs. Else lines.
  // packed_matmul fetches PackedMatmulArgs::later beside octets times kPrefetchRows rows and more.
  bool fetches_lists;
  // Where quad_codes: 64 codes each of rows <= 16 rows, `stride` bytes apart, to [16 quads][16 rows][4].
  void (*pack_quads)(const int8_t* lines, int64_t stride, int64_t rows, int8_t* tile);
  void (*attention)(const AttentionArgs& args);
  void (*store_kv)(const StoreKvArgs& args);
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*rope_table)(float position, const float* inv_freq, int64_t half, float* cos, float* sin);
  void (*rope)(float* head, const float* cos, const float* sin, int64_t half);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*residual_silu)(const float* residual, const float* linear, int64_t n, float* out);
  // out[i] of kExpSumScores from x[kExpSumScores i] on, the last of fewer: NaN and -infinity add nothing, beside a
  // number.
  void (*exp_sums)(const float* x, int64_t n, ExpSum* out);
  // out[i] = from[i], widened.
  void (*widen)(const uint8_t* from, FloatType type, int64_t n, float* out);
  // Standard Gumbel noise for tokens 0..vocab-1 (noise.h has the definition).
  void (*gumbel_row)(uint64_t seed, uint32_t stream, uint32_t position, int64_t vocab, float* out);
  PeakEntries peak;  // for measuring only

  bool Reads(PackedType type) const {
    return LayoutOf(type) == PackedLayout::kInterleaved ? reads_interleaved : reads_lines;
  }
  // Bytes of 64 inputs of a RowBlock.
  int64_t BlockBytes(const RowBlock& block) const {
    return (quad_codes ? kQuadRows : block.rows) * kLineBytes * (sign_codes ? 2 : 1);
  }
  // The layout that weights are made in for it.
  PackedLayout layout() const { return reads_lines ? PackedLayout::kLines : PackedLayout::kInterleaved; }
};

const KernelTable& PortableKernels();

// The table that is written to be checked and whose attention over keys and values of a type has the bits of `table`'s:
// portable, but for bf16 by tiles, which add in an order of their own, amx-twin.
const KernelTable& AttentionTwin(const KernelTable& table, DType kv_type);

// The table for a --cpu-target name ("auto" = HYDRANT_CPU_TARGET where it is set, else the best this machine runs).
// Throws UserError with three different messages: unknown name (with the nearest), not compiled in, not supported by
// this machine.
const KernelTable& KernelsFor(std::string_view cpu_target);

// The same for a model of this hidden size, [1, ..]: "auto" is amx-quads where it would be amx and the model is small.
// (Tiles of lines finish 16 outputs x 16 rows at a time, which costs more than the products of few inputs. Intel with
// AMX, two cores, w8a8, 1, 4, 16, 64 rows: hidden size 256, amx-quads .32 .40 .60 1.77 ms, avx512 .32 .39 .84 3.09, amx
// .36 .47 .76 1.97; hidden size 2048, amx-quads 42 41 60 98, avx512 41 41 69 145, amx 39 41 43 57.)
const KernelTable& KernelsForModel(std::string_view cpu_target, int64_t hidden_size);

// Every table that this machine can run, portable first: for tests.
std::vector<const KernelTable*> AvailableKernels();
// Every name that --cpu-target takes, "auto" first.
std::span<const std::string_view> CpuTargetNames();

}  // namespace hydrant::kernels
