// SPDX-License-Identifier: Apache-2.0
// Attention over a paged KV cache. Rows of prompts, plain decoding and trees are the same thing here
// (docs/algorithms/tree_attention.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_arguments.h"
#include "kernels/ops/attention_plan.h"
#include "kernels/ops/queue.h"
#include "kernels/ops/rows.h"
#include "tensor/dtype.h"

namespace hydrant::kernels {

// One layer of a paged KV cache: [kv head][block] of 32 positions' keys and values in `dtype`, so that a head's past is
// one stream where its blocks are neighbours. KvHead (attention_arguments.h) has the layout inside a block.
struct KvLayer {
  uint8_t* data = nullptr;
  DType dtype = DType::kF32;  // f32, bf16 (Dh even) or f16
  int64_t num_kv_heads = 0, head_dim = 0;
  int64_t num_blocks = 0;

  int64_t key_bytes() const { return kBlockPositions * head_dim * static_cast<int64_t>(SizeOf(dtype)); }
  int64_t value_bytes() const { return kBlockPositions * ValueWidth(head_dim) * static_cast<int64_t>(SizeOf(dtype)); }
  int64_t block_bytes() const { return key_bytes() + value_bytes(); }  // of one head
  int64_t num_bytes() const { return num_kv_heads * num_blocks * block_bytes(); }
  KvHead head(int64_t kv_head) const;
  // Where element d of a slot's key or value is.
  uint8_t* key(const int32_t* blocks, int64_t kv_head, int64_t slot, int64_t d) const;
  uint8_t* value(const int32_t* blocks, int64_t kv_head, int64_t slot, int64_t d) const;
};

// QK-norm of Qwen3, over each head; empty: none.
struct HeadNorms {
  std::span<const float> q, k;  // [Dh]
  float eps = 0;
};
// What turns the heads of a pass's rows: norms, then cos and sin [R, Dh / 2].
struct HeadRotation {
  HeadNorms norms;
  ConstRows cos, sin;
};
// Norms and then rotates each head of q [R, H * Dh] and k [R, Hk * Dh] in place, Hugging Face's half split:
// (a, b) -> (a cos - b sin, b cos + a sin), a = first half.
void RotateHeads(Queue& queue, Rows q, Rows k, int64_t head_dim, const HeadRotation& rotation);
// Writes each row's key and value (keys already rotated) to its slot. k, v [R, Hk * Dh].
void StoreKv(Queue& queue, ConstRows k, ConstRows v, std::span<const RowKv> rows, const KvLayer& kv);

// Lists where the keys and values lie that the plan's rows read or write of heads head_begin .. head_end - 1. They come
// in pieces of `bytes` for a PrefetchList, at most `most`, run by run and head by head.
void ListKv(const AttentionPlan& plan, const KvLayer& kv, int64_t head_begin, int64_t head_end, int64_t bytes,
            int64_t most, std::vector<const uint8_t*>& pieces);

// Copies the keys and values of slots from[i] to slots to[i], in order; to[i] <= from[i], both ascending.
void CopySlots(const KvLayer& kv, const int32_t* blocks, std::span<const int32_t> from, std::span<const int32_t> to);

// q [R, H * Dh] -> out [R, H * Dh]. Each row and head goes through blocks of 32 positions at fixed absolute places, in
// ascending order, and merges them with a running (reference, sums, output). With bf16 keys and values, queries and
// weights are rounded to bf16 as well. docs/algorithms/order_of_additions.md has the order. Rows with the same blocks
// should stand together, because they share reads.
void Attention(Queue& queue, ConstRows q, const AttentionPlan& plan, const KvLayer& kv, Rows out);
// The same with a plan of its own.
void Attention(Queue& queue, ConstRows q, std::span<const RowKv> rows, const KvLayer& kv,
               const AttentionOptions& options, Rows out);

// For rows that do not attend themselves, such as all but the last row of a prompt in the last layer: rotates and
// stores their keys and values as RotateStoreAttend does. It does not wait for the other threads, because
// RotateStoreAttend of later rows of the same pass follows.
void RotateStore(Queue& queue, Rows k, ConstRows v, const HeadRotation& rotation, std::span<const RowKv> rows,
                 const KvLayer& kv);
// RotateHeads, StoreKv and Attention in one op. Where it can, a thread inside a region goes through all three with its
// own heads, so that it waits for the others once and not three times.
void RotateStoreAttend(Queue& queue, Rows q, Rows k, ConstRows v, const HeadRotation& rotation,
                       const AttentionPlan& plan, const KvLayer& kv, Rows out);

// Rows of queries, keys and values of some kv heads: first_kv_head and the following ones.
struct HeadRows {
  int64_t first_kv_head = 0;
  Rows q, k;    // [R, n * H / Hk * Dh], [R, n * Dh]
  ConstRows v;  // [R, n * Dh]
};
// Serial: RotateStoreAttend of these heads, which no other thread touches. Rotates q and k in place, and writes only
// the columns of these heads in out [R, H * Dh].
void AttendHeads(const KernelTable& table, const HeadRows& heads, const HeadRotation& rotation,
                 const AttentionPlan& plan, const KvLayer& kv, Rows out);

}  // namespace hydrant::kernels
