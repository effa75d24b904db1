// SPDX-License-Identifier: Apache-2.0
// Arguments of kernel entries: plain data that target files may include.
#pragma once

#include <cstdint>

#include "kernels/packed.h"

namespace hydrant::kernels {

// Over some numbers, the sum of exp(x - largest): parts can be joined without overflow.
struct ExpSum {
  float largest, sum;
};
inline constexpr int64_t kExpSumScores = 64;  // numbers in one part

enum class FloatType : uint8_t { kF32, kBF16, kF16 };

// f32 matmul order (docs/algorithms/order_of_additions.md): the inputs in 8 slices of `slice` = ceil(I / 8), each one
// fused chain.
inline constexpr int64_t kSlices = 8;
// Rows that one pass over the slices takes.
inline constexpr int64_t kSliceRows = 8;
// Rows of one call: weights are read once for them.
inline constexpr int64_t kMatmulRows = 64;

// x comes packed, in two ways. The first `lane_rows` rows lie in groups of the table's row_lanes:
// [group][I][row_lanes], with zeros in the lanes past the last row. The other rows lie by slices:
// [row][padded_slice][8], where lane s of step j is input s * slice + j, and zero past the end.
struct MatmulArgs {
  const float* packed_lanes = nullptr;
  const float* packed_slices = nullptr;
  int64_t rows = 0;                 // R <= kMatmulRows
  int64_t lane_rows = 0;            // rows that are packed by lanes
  int64_t slice = 0;                // ceil(I / 8)
  int64_t padded_slice = 0;         // rounded up to 8
  const uint8_t* weight = nullptr;  // [O, I], unaligned
  FloatType type = FloatType::kF32;
  int64_t inputs = 0;           // I
  int64_t row_stride = 0;       // elements between output rows
  const float* bias = nullptr;  // [O] or null
  float* out = nullptr;         // [R, O]
  int64_t out_stride = 0;
  bool add = false;  // out += instead of out =
};

// Activation rows as int8 codes that go through a packed matmul together.
struct RowBlock {
  int64_t first = 0, rows = 0;  // code rows first .. first + rows - 1 of the call
  // The target's form of codes:
  //   lines                       [I / 64][rows][64]
  //   quads (tiles, rows <= 16)   [I / 64][16][16][4], code rows past `rows` unspecified
  //   signs (AVX2)                [I / 64][rows][2][64]: |code|, then a byte to xor with weight + 128: 0x80 gives
  //                               weight; where the code is negative 0x7f gives -weight - 1
  const int8_t* codes = nullptr;
};

inline constexpr int64_t kQuadRows = 16;  // of a block of quads, whatever its number of rows

// Most code rows of one call: 64 rows of activations in two planes each, or 64 rows in one plane; 128 in one plane
// where tiles multiply.
inline constexpr int64_t kMaxCodeRows = 128;

// Memory that a later op of the same thread will read, cut into pieces of as many bytes as the call has (padded)
// inputs. A kernel that does not keep memory busy brings one piece to L2 beside each panel. The other kernels ignore
// the list.
struct PrefetchList {
  const uint8_t* const* pieces = nullptr;  // [count]
  int64_t count = 0;
  int64_t wait = 0;  // panels that pass before the first piece
};
// From so many rows on, AVX-512 waits for products of octets and not for memory, so that it has time to fetch.
inline constexpr int64_t kPrefetchRows = 6;

// Rows times a range of panels of a packed matrix (packed.h): out[r][o] = value (+ bias[o]) or out[r][o] += that, with
//   value = f32(sum) * (row_scales[o] * scales[r]),  sum = sum over i of codes[r][i] * weight[o][i]  in int32,
// or, with two planes, code rows 2r (high) and 2r + 1 (low) of row r:
//   value = f32(256.0 * high_sum + low_sum, added in double) * (row_scales[o] * scales[r]).
// The product of the scales is rounded first. Bits are the same on every target and for any number of rows.
struct PackedMatmulArgs {
  PackedType type = PackedType::kW8;
  const uint8_t* panels = nullptr;
  const uint8_t* next =
      nullptr;  // four such panels that a later call begins with, to be fetched ahead or read; or null
  PrefetchList* later = nullptr;  // or null
  int64_t panel_bytes = 0, code_offset = 0;
  int64_t steps = 0;  // of 128 inputs
  int64_t outputs = 0;
  const float* row_scales = nullptr;
  const uint8_t* dictionary = nullptr;

  const RowBlock* blocks = nullptr;
  int64_t num_blocks = 0;
  int64_t code_rows = 0;          // <= kMaxCodeRows
  bool two_planes = false;        // rows = code_rows / 2, else code_rows
  const float* scales = nullptr;  // [rows]
  // [code_rows] By how much the target's sum of a code row is too large: 128 times the sum of the row's codes where
  // weights are multiplied with their bias of 128, the sum of the row's negative codes on AVX2.
  const int32_t* excess = nullptr;

  const float* bias = nullptr;  // [O] or null
  float* out = nullptr;         // [rows, O]
  int64_t out_stride = 0;
  bool add = false;
};

// One row to int8 codes (docs/algorithms/low_bit_weights.md): scale = largest |x| / 127, code = rint(x * (127 /
// largest)). With `low`, two planes: q = rint(x * (32512 / largest)), high = (q + 128) >> 8, low = q - 256 * high,
// scale = largest / 32512. Rows below 1e-30 are all zero with scale 0; a row with NaN or infinity gets codes 0 and
// scale NaN.
struct QuantizeArgs {
  const float* x = nullptr;  // [inputs]
  int64_t inputs = 0;
  int64_t padded_inputs = 0;  // a multiple of 128; codes past `inputs` are 0
  int8_t* codes = nullptr;    // code of input i at (i / 64) * chunk_stride + (i % 64 / 4) * quad_stride + i % 4. AVX2:
                              // its magnitude, and its sign 64 bytes further; quad_stride is 4
  int8_t* low = nullptr;      // the same for the low plane with low_chunk_stride; null: 8 bits
  int64_t chunk_stride = 0, low_chunk_stride = 0, quad_stride = 0;
  float* scale = nullptr;
  int32_t *excess = nullptr, *low_excess = nullptr;  // as in PackedMatmulArgs
};

}  // namespace hydrant::kernels
