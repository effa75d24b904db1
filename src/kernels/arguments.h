// SPDX-License-Identifier: Apache-2.0
// Arguments of kernel entries: plain data that target files may include.
#pragma once

#include <cstdint>

namespace hydrant::kernels {

enum class FloatType : uint8_t { kF32, kBF16, kF16 };

// f32 matmul order (docs/algorithms/order_of_additions.md): the inputs in 8 slices of `slice` = ceil(I / 8), each one
// fused chain.
inline constexpr int64_t kSlices = 8;
// Rows of one call: weights are read once for them.
inline constexpr int64_t kMatmulRows = 64;

// x comes packed. The first `lane_rows` rows in groups of the table's row_lanes: [group][I][row_lanes], lanes past the
// last row zero. The other rows by slices: [row][padded_slice][8], lane s of step j is input s * slice + j, zero past
// the end.
struct MatmulArgs {
  const float* packed_lanes = nullptr;
  const float* packed_slices = nullptr;
  int64_t rows = 0;                 // R <= kMatmulRows
  int64_t lane_rows = 0;            // of them
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

// One row's query heads of one kv head. Positions first .. last, in KV slots as RowKv says.
struct AttentionArgs {
  const float* q = nullptr;  // [group, Dh]: the query heads that share this kv head
  float* out = nullptr;      // [group, Dh]
  int64_t group = 0;
  int64_t head_dim = 0;
  const uint8_t* kv = nullptr;  // the layer's blocks
  FloatType type = FloatType::kF32;
  int64_t num_kv_heads = 0;
  int64_t kv_head = 0;
  float scale = 0;
  const int32_t* blocks = nullptr;
  const int32_t* path = nullptr;
  int32_t first = 0, last = 0;  // positions attended to
  int32_t identity_length = 0;
  float* scratch = nullptr;  // [2, 32, Dh]: one block of keys and values, widened
};

}  // namespace hydrant::kernels
