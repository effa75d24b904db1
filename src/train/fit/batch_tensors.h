// SPDX-License-Identifier: Apache-2.0
// One batch as tensors. Its N positions are flat: those of all segments, one segment after another. Position n of a
// segment is a place where a reply could go on: the base has seen the tokens up to n, and token n + 1 is the root of
// the next step. Head i predicts token n + i + 2.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace hydrant::train {

// One segment's tokens in the order of the batch.
struct SegmentTokens {
  std::span<const int32_t> tokens;   // [n]
  std::span<const uint8_t> learned;  // [n]
};

// Positions as rows of equal length, for attention: a row holds one segment or several, and ends in padding.
struct RowLayout {
  int64_t num_rows = 0, length = 0;
  bool is_dense = false;  // every row is full: [N] is [num_rows, length]
  at::Tensor place;       // [N] i64, into [num_rows * length]
  at::Tensor mask;        // [1 or num_rows, 1, length, length]: 0 where a position sees another, else -infinity
};

struct BatchTensors {
  at::Tensor tokens;               // [N] i64
  at::Tensor position;             // [N] i64, within the segment
  at::Tensor learned;              // [N] bool: may be the label of a loss
  std::vector<at::Tensor> hidden;  // [wanted layers] of [N, D] f32
  RowLayout rows;
  int64_t size() const { return tokens.numel(); }
};

// `rows`: how many segments each row has, in order.
BatchTensors MakeBatchTensors(std::span<const SegmentTokens> segments, std::span<const int32_t> rows,
                              std::vector<at::Tensor> hidden);

// Copies a matrix into a tensor.
at::Tensor TensorOf(const Matrix& matrix);

// values[n + shift] at n; what lies behind the last position is arbitrary.
at::Tensor Shifted(const at::Tensor& values, int64_t shift);

// [N, C] to [num_rows, length, C] and back; padding is zero.
at::Tensor ToRows(const RowLayout& rows, const at::Tensor& flat);
at::Tensor ToFlat(const RowLayout& rows, const at::Tensor& padded);

}  // namespace hydrant::train
