// SPDX-License-Identifier: Apache-2.0
// The operations of a forward pass. Each checks its arguments, splits the work over the queue's threads, and calls the
// active CPU target's kernel. Every op is batch-invariant: a row's bits do not depend on the other rows, on the number
// of rows, or on the number of threads (docs/algorithms/order_of_additions.md). f32 results are equal bit for bit on
// every CPU target.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/matmul.h"
#include "kernels/queue.h"
#include "kernels/rows.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace hydrant::kernels {

// out[r] = x[r] * (1 / sqrt(mean(x[r]^2) + eps)) * weight.  Sum of squares: 16 fused chains by index mod 16, tree
// 8-4-2-1. May be in place.
void RmsNorm(Queue& queue, ConstRows x, std::span<const float> weight, float eps, Rows out);
// cos and sin of positions[r] * inv_freq[i], both [R, Dh / 2]; angle product in f32, own sin and cos.
void RopeTable(Queue& queue, std::span<const int32_t> positions, std::span<const float> inv_freq, Rows cos, Rows sin);
// QK-norm of Qwen3, over each head; empty: none.
struct HeadNorms {
  std::span<const float> q, k;  // [Dh]
  float eps = 0;
};
// Norms and then rotates each head of q [R, H * Dh] and k [R, Hk * Dh] in place, Hugging Face's half split:
// (a, b) -> (a cos - b sin, b cos + a sin), a = first half.
void RotateHeads(Queue& queue, Rows q, Rows k, int64_t head_dim, const HeadNorms& norms, ConstRows cos, ConstRows sin);

// out = silu(gate) * up, silu(v) = v / (1 + exp(-v)). May be in place on gate.
void SiluMul(Queue& queue, ConstRows gate, ConstRows up, Rows out);
// out = residual + silu(linear). May be in place on either.
void ResidualSilu(Queue& queue, ConstRows residual, ConstRows linear, Rows out);
// out += x.
void AddRows(Queue& queue, ConstRows x, Rows out);

// out[r] = table[tokens[r]], widened. table [V, D].
void Embed(Queue& queue, const TensorView& table, std::span<const int32_t> tokens, Rows out);

// Positions per KV block, at fixed absolute places; also the attention block.
inline constexpr int32_t kBlockPositions = 32;

// One layer of a paged KV cache: [block][k|v][kv head][position in block][Dh] in `dtype`.
struct KvLayer {
  uint8_t* data = nullptr;
  DType dtype = DType::kF32;  // f32, bf16 or f16
  int64_t num_kv_heads = 0, head_dim = 0;

  int64_t block_elements() const { return 2 * num_kv_heads * kBlockPositions * head_dim; }
};

// Where one row's keys and values are: positions p < identity_length are in KV slot p, position identity_length + j is
// in slot path[j] (a tree row's own ancestors and itself). Slot s is position s % 32 of block blocks[s / 32].
struct RowKv {
  const int32_t* blocks = nullptr;
  const int32_t* path = nullptr;
  int32_t position = 0;         // of this row; it attends to positions max(0, position - window + 1) .. position
  int32_t identity_length = 0;  // position + 1 for prompt rows
  int32_t slot = 0;             // where this row's own key and value go
};

// Writes each row's key and value (keys already rotated) to its slot. k, v [R, Hk * Dh].
void StoreKv(Queue& queue, ConstRows k, ConstRows v, std::span<const RowKv> rows, const KvLayer& kv);

struct AttentionOptions {
  int64_t num_heads = 0;  // H, a multiple of the layer's Hk
  float scale = 0;        // 1 / sqrt(Dh)
  int32_t window = 0;     // 0 = none; W = keys p - W + 1 .. p
};

// q [R, H * Dh] -> out [R, H * Dh]. Per row and head: blocks of 32 positions at fixed absolute places, ascending,
// merged with a running (max, sum, output). Dot products: 16 fused chains by index mod 16, tree 8-4-2-1.
void Attention(Queue& queue, ConstRows q, std::span<const RowKv> rows, const KvLayer& kv,
               const AttentionOptions& options, Rows out);

}  // namespace hydrant::kernels
