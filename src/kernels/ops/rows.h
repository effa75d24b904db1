// SPDX-License-Identifier: Apache-2.0
// Activations: rows of f32, `stride` floats apart.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace hydrant::kernels {

struct Rows {
  float* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;

  Rows() = default;
  Rows(float* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  Rows(Matrix& m)
      : data(m.data()), rows(m.rows()), cols(m.cols()), stride(m.stride()) {}  // NOLINT(google-explicit-constructor)
  float* row(int64_t r) const { return data + r * stride; }
  Rows Part(int64_t first, int64_t count) const { return {row(first), count, cols, stride}; }
};
struct ConstRows {
  const float* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;

  ConstRows() = default;
  ConstRows(const float* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  ConstRows(const Matrix& m)
      : data(m.data()), rows(m.rows()), cols(m.cols()), stride(m.stride()) {}  // NOLINT(google-explicit-constructor)
  ConstRows(const Rows& m)
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}  // NOLINT(google-explicit-constructor)
  const float* row(int64_t r) const { return data + r * stride; }
  ConstRows Part(int64_t first, int64_t count) const { return {row(first), count, cols, stride}; }
};

}  // namespace hydrant::kernels
