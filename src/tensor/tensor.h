// SPDX-License-Identifier: Apache-2.0
// Memory with a shape: a view of a tensor in a file or a buffer, and an owned f32 matrix for activations.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace hydrant {

// A row-major, contiguous tensor that lies in a mapped file or in memory that `owner` keeps alive.
// Elements may be unaligned (safetensors and zip entries promise no alignment): kernels load them unaligned.
struct TensorView {
  const uint8_t* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::shared_ptr<const void> owner;  // mapping or buffer; null when the memory outlives the view anyway

  int64_t num_elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * SizeOf(dtype); }
  bool empty() const { return data == nullptr; }
};

// "[4096, 8192]".
std::string ShapeString(std::span<const int64_t> shape);

// Widens any float tensor to f32, exactly.
std::vector<float> ToFloats(const TensorView& tensor);

float BFloat16ToFloat(uint16_t bits);
float Float16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);  // round to nearest, ties to even; NaN stays NaN
uint16_t FloatToFloat16(float value);   // round to nearest, ties to even; overflow to infinity

// An owned f32 matrix, rows on 64-byte lines: activations, logits, scratch.
// Contents are undefined after Resize; capacity never shrinks.
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols) { Resize(rows, cols); }

  void Resize(int64_t rows, int64_t cols);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t stride() const { return stride_; }  // floats from one row to the next: an odd multiple of 16
  float* row(int64_t r) { return data_.get() + r * stride_; }
  const float* row(int64_t r) const { return data_.get() + r * stride_; }
  std::span<float> row_span(int64_t r) { return {row(r), static_cast<size_t>(cols_)}; }
  std::span<const float> row_span(int64_t r) const { return {row(r), static_cast<size_t>(cols_)}; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float[], Free> data_;
  int64_t capacity_ = 0;
  int64_t rows_ = 0, cols_ = 0, stride_ = 0;
};

}  // namespace hydrant
