// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include <bit>
#include <cstring>
#include <new>

#include "base/check.h"

namespace hydrant {

std::string ShapeString(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

float BFloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t fraction = bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent > 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Zero or subnormal: fraction * 2^-24 is exact in f32.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t FloatToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 makes the f32 adder round to a multiple of 2^-24, ties to even.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

std::vector<float> ToFloats(const TensorView& tensor) {
  HYDRANT_CHECK(IsFloat(tensor.dtype));
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  if (tensor.dtype == DType::kF32) {
    if (!values.empty()) std::memcpy(values.data(), tensor.data, tensor.num_bytes());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, tensor.data + 2 * i, 2);
    values[i] = tensor.dtype == DType::kBF16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
  }
  return values;
}

void Matrix::Resize(int64_t rows, int64_t cols) {
  HYDRANT_CHECK(rows >= 0 && cols >= 0);
  // An odd number of lines: the same columns of many rows, which matmuls write one after the other, then lie in as many
  // sets of a cache as there are. (11,008 columns were 688 lines: 4 sets of 64 in the first level.)
  stride_ = cols == 0 ? 0 : ((cols + 15) / 16 | 1) * 16;
  const int64_t needed = rows * stride_;
  if (needed > capacity_) {
    auto* memory = static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(needed) * sizeof(float)));
    if (memory == nullptr) throw std::bad_alloc();
    data_.reset(memory);
    capacity_ = needed;
  }
  rows_ = rows;
  cols_ = cols;
}

}  // namespace hydrant
