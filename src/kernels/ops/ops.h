// SPDX-License-Identifier: Apache-2.0
// The operations of a forward pass. Each checks its arguments, splits the work over the queue's threads, and calls the
// active CPU target's kernel. Every op is batch-invariant: a row's bits do not depend on the other rows, on the number
// of rows, or on the number of threads (docs/algorithms/order_of_additions.md). f32 results are equal bit for bit on
// every CPU target.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/attention_ops.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/queue.h"
#include "kernels/ops/rows.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace hydrant::kernels {

// out[r] = x[r] * (1 / sqrt(mean(x[r]^2) + eps)) * weight.  Sum of squares: 16 fused chains by index mod 16, tree
// 8-4-2-1. May be in place.
void RmsNorm(Queue& queue, ConstRows x, std::span<const float> weight, float eps, Rows out);
// cos and sin of positions[r] * inv_freq[i], both [R, Dh / 2]; angle product in f32, own sin and cos.
void RopeTable(Queue& queue, std::span<const int32_t> positions, std::span<const float> inv_freq, Rows cos, Rows sin);

// out = silu(gate) * up, silu(v) = v / (1 + exp(-v)). May be in place on gate.
void SiluMul(Queue& queue, ConstRows gate, ConstRows up, Rows out);
// out = residual + silu(linear). May be in place on either.
void ResidualSilu(Queue& queue, ConstRows residual, ConstRows linear, Rows out);
// out[r] = gelu(x[r] + bias), gelu(v) = v * Phi(v) with the normal distribution Phi (the exact form, not the one by
// tanh) for finite v. May be in place.
void BiasGelu(Queue& queue, ConstRows x, std::span<const float> bias, Rows out);

// out[r] = table[tokens[r]], widened. table [V, D].
void Embed(Queue& queue, const TensorView& table, std::span<const int32_t> tokens, Rows out);

}  // namespace hydrant::kernels
