// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

template <typename F>
void ForRows(Queue& queue, int64_t rows, int64_t operations_per_row, F f) {
  ForItems(queue, rows, operations_per_row, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r);
  });
}

}  // namespace

FloatType FloatTypeOf(DType dtype) {
  HYDRANT_CHECK(IsFloat(dtype));
  return dtype == DType::kF32 ? FloatType::kF32 : dtype == DType::kBF16 ? FloatType::kBF16 : FloatType::kF16;
}

void RmsNorm(Queue& queue, ConstRows x, std::span<const float> weight, float eps, Rows out) {
  HYDRANT_CHECK(x.cols == static_cast<int64_t>(weight.size()) && x.cols == out.cols && x.rows == out.rows);
  ForRows(queue, x.rows, 2 * x.cols,
          [&](int64_t r) { queue.table->rms_norm(x.row(r), weight.data(), eps, x.cols, out.row(r)); });
}

void RopeTable(Queue& queue, std::span<const int32_t> positions, std::span<const float> inv_freq, Rows cos, Rows sin) {
  const auto rows = static_cast<int64_t>(positions.size());
  const auto half = static_cast<int64_t>(inv_freq.size());
  HYDRANT_CHECK(cos.rows == rows && sin.rows == rows && cos.cols == half && sin.cols == half);
  ForRows(queue, rows, 32 * half, [&](int64_t r) {
    queue.table->rope_table(static_cast<float>(positions[static_cast<size_t>(r)]), inv_freq.data(), half, cos.row(r),
                            sin.row(r));
  });
}

void SiluMul(Queue& queue, ConstRows gate, ConstRows up, Rows out) {
  HYDRANT_CHECK(gate.rows == up.rows && gate.cols == up.cols && gate.rows == out.rows && gate.cols == out.cols);
  ForRows(queue, gate.rows, 16 * gate.cols,
          [&](int64_t r) { queue.table->silu_mul(gate.row(r), up.row(r), gate.cols, out.row(r)); });
}

void ResidualSilu(Queue& queue, ConstRows residual, ConstRows linear, Rows out) {
  HYDRANT_CHECK(residual.rows == linear.rows && residual.cols == linear.cols && residual.rows == out.rows &&
                residual.cols == out.cols);
  ForRows(queue, residual.rows, 16 * residual.cols,
          [&](int64_t r) { queue.table->residual_silu(residual.row(r), linear.row(r), residual.cols, out.row(r)); });
}

void BiasGelu(Queue& queue, ConstRows x, std::span<const float> bias, Rows out) {
  HYDRANT_CHECK(x.cols == static_cast<int64_t>(bias.size()) && x.cols == out.cols && x.rows == out.rows);
  ForRows(queue, x.rows, 24 * x.cols,
          [&](int64_t r) { queue.table->bias_gelu(x.row(r), bias.data(), x.cols, out.row(r)); });
}

void Embed(Queue& queue, const TensorView& table, std::span<const int32_t> tokens, Rows out) {
  HYDRANT_CHECK(table.shape.size() == 2 && table.shape[1] == out.cols &&
                out.rows == static_cast<int64_t>(tokens.size()));
  const FloatType type = FloatTypeOf(table.dtype);
  const size_t bytes = SizeOf(table.dtype);
  ForRows(queue, out.rows, out.cols, [&](int64_t r) {
    const int64_t token = tokens[static_cast<size_t>(r)];
    HYDRANT_CHECK(token >= 0 && token < table.shape[0]);
    const uint8_t* source = table.data + static_cast<size_t>(token * out.cols) * bytes;
    queue.table->widen(source, type, out.cols, out.row(r));
  });
}

}  // namespace hydrant::kernels
