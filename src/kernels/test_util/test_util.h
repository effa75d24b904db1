// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: random data, weights at odd addresses, and equality of bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/ops/ops.h"
#include "tensor/tensor.h"

namespace hydrant::kernels {

inline constexpr double kEpsilon = 0x1p-24;  // of one f32 rounding

inline std::vector<float> RandomFloats(int64_t count, uint32_t seed, float scale = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline Matrix MatrixOf(int64_t rows, int64_t cols, const std::vector<float>& values) {
  Matrix matrix(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) matrix.row(r)[c] = values[static_cast<size_t>(r * cols + c)];
  }
  return matrix;
}

inline Matrix RandomMatrix(int64_t rows, int64_t cols, uint32_t seed, float scale = 1.0F) {
  return MatrixOf(rows, cols, RandomFloats(rows * cols, seed, scale));
}

inline void StoreAs(DType dtype, float value, uint8_t* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? FloatToBFloat16(value) : FloatToFloat16(value);
  std::memcpy(to, &bits, 2);
}

inline float LoadAs(DType dtype, const uint8_t* from) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, from, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from, 2);
  return dtype == DType::kBF16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
}

// Equal bits; any NaN equals any NaN.
inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline void ExpectSameBits(ConstRows a, ConstRows b, const std::string& what) {
  ASSERT_EQ(a.rows, b.rows) << what;
  ASSERT_EQ(a.cols, b.cols) << what;
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols; ++c) {
      ASSERT_TRUE(SameBits(a.row(r)[c], b.row(r)[c]))
          << what << ": [" << r << ", " << c << "] is " << a.row(r)[c] << ", expected " << b.row(r)[c];
    }
  }
}

// Runs fn(queue, name) for every table of this machine, portable first, with 1, 2 and 3 threads.
template <typename Fn>
void ForEveryQueue(const Fn& fn) {
  for (const KernelTable* table : AvailableKernels()) {
    for (const int threads : {1, 2, 3}) {
      static base::ThreadPool pools[] = {{1, false}, {2, false}, {3, false}};
      Queue queue{&pools[threads - 1], table};
      fn(queue, std::string(table->name) + " with " + std::to_string(threads) + " threads");
    }
  }
}

}  // namespace hydrant::kernels
