// SPDX-License-Identifier: Apache-2.0
// Arguments of the attention kernels and the layout of the KV cache: plain data that target files may include.
#pragma once

#include <cstdint>

#include "kernels/arguments.h"

namespace hydrant::kernels {

// Positions per KV block, at fixed absolute places. Attention goes block by block, too.
inline constexpr int32_t kBlockPositions = 32;

// Where one row's keys and values are: positions p < identity_length are in KV slot p, position identity_length + j is
// in slot path[j] (a tree row's own ancestors and itself). Slot s is position s % 32 of block blocks[s / 32].
struct RowKv {
  const int32_t* blocks = nullptr;
  const int32_t* path = nullptr;
  int32_t position = 0;         // of this row; it attends to positions max(0, position - window + 1) .. position
  int32_t identity_length = 0;  // position + 1 for prompt rows
  int32_t slot = 0;             // where this row's own key and value go
};

// One kv head of one layer. A block holds 32 positions' keys, then their values. A vector register holds one dimension
// of sixteen positions (keys), or sixteen dimensions of one position (values):
//   f32, f16  keys [Dh][32],        values [32][Dv]         Dv = Dh rounded up to 16; the rest is never written
//   bf16      keys [Dh / 2][32][2], values [16][Dv][2]      pairs that one two-way dot product takes; Dh is even
struct KvHead {
  uint8_t* keys = nullptr;  // of block 0
  uint8_t* values = nullptr;
  int64_t block_bytes = 0;  // from a block to the next
  FloatType type = FloatType::kF32;
  int64_t head_dim = 0;
};

static inline int64_t ValueWidth(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// One row of an attention call.
struct AttentionRow {
  int32_t first = 0, last = 0;  // positions attended to
  // Positions below it lie in the slots of their own number. It is a multiple of 32 where some positions do not; the
  // pointers below then describe the positions from here to `last`, the row's tail.
  int32_t in_place_end = 0;
  int32_t prefix_end = 0;  // the same, not rounded to a multiple of 32
  const int32_t* slots = nullptr;
  const int32_t* lanes = nullptr;  // [tail] where its score is: 32 * index in tail_blocks + slot % 32
  // [tail block][32] For each lane of the row's TailGroup, the position within the block whose value it holds;
  // kNoPosition: none that the row attends to.
  const uint8_t* value_sources = nullptr;

  bool has_tail() const { return in_place_end <= last; }
  int32_t num_tail_blocks() const { return has_tail() ? (last - in_place_end) / kBlockPositions + 1 : 0; }
  bool HasTailIn(int32_t block) const {
    const int32_t begin = kBlockPositions * block, end = begin + kBlockPositions;
    return has_tail() && in_place_end <= begin && first < end && last >= begin;
  }
};

// Neighbouring rows of a tree whose values of one block of positions are gathered together. In bf16 a sum over a block
// is two chains, one over the even lanes and one over the odd lanes. So a row's positions may lie in any lanes of their
// parity, as long as they ascend, and lanes of other rows add 0. This way nodes of one depth lie side by side, and rows
// share their common ancestors.
struct TailGroup {
  const AttentionRow* begin = nullptr;
  const AttentionRow* end = nullptr;
  int32_t block = 0;               // of positions
  int32_t slots[kBlockPositions];  // the slot of each lane; kNoSlot: zeros
};
inline constexpr int32_t kNoSlot = -1;
inline constexpr uint8_t kNoPosition = 0xff;

inline constexpr int64_t kAttentionColumns = 64;

// Rows of one sequence, and `group` query heads of each that share a kv head: columns (row, head), at most 64.
// Query head g of row r is at q + r * q_stride + g * head_dim; the output likewise.
struct AttentionArgs {
  KvHead kv;
  int64_t group = 0, num_rows = 0;
  const AttentionRow* rows = nullptr;
  const int32_t* blocks = nullptr;  // of the sequence
  // The blocks with slots of positions that are not in place, as indices in `blocks`.
  const int32_t* tail_blocks = nullptr;
  int32_t num_tail_blocks = 0;
  const TailGroup* tail_groups = nullptr;  // of the sequence, blocks ascending
  int64_t num_tail_groups = 0;
  float scale = 0;
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t next_head_bytes = 0;  // to the head that will be attended to next, for prefetch; 0: none
  float* scratch = nullptr;     // AttentionScratch floats, on a 64-byte line
};

inline constexpr int64_t kQueryPad = 16;  // floats between packed queries, at most

// Floats of scratch: packed queries and outputs for all columns (tiles round their number up, by 3 at most), 16 merged
// pairs of values, a step of keys, and scores of the tail blocks for 16 columns.
static inline int64_t AttentionScratch(int64_t head_dim, int64_t columns, int64_t num_tail_blocks) {
  return (2 * (columns + 3) + 16) * ValueWidth(head_dim) + (columns + 3) * kQueryPad +
         (num_tail_blocks + 1) * 16 * kBlockPositions;
}

// Keys and values of one kv head for rows whose slots are given: row r's are at k + r * k_stride and v + r * v_stride.
struct StoreKvArgs {
  KvHead kv;
  const RowKv* rows = nullptr;
  int64_t num_rows = 0;
  const float* k = nullptr;
  int64_t k_stride = 0;
  const float* v = nullptr;
  int64_t v_stride = 0;
};

}  // namespace hydrant::kernels
