// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace hydrant::tensor_test {
namespace {

TEST(Float16Test, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Float16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(FloatToFloat16(value), bits) << bits;
  }
}

TEST(Float16Test, RoundsToNearestTiesToEven) {
  EXPECT_EQ(FloatToFloat16(1.0F + 0x1p-11F), 0x3c00);  // halfway between 1 and 1 + 2^-10
  EXPECT_EQ(FloatToFloat16(1.0F + 0x3p-11F), 0x3c02);
  EXPECT_EQ(FloatToFloat16(65519.0F), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65520.0F), 0x7c00);
  EXPECT_EQ(FloatToFloat16(0x1p-25F), 0x0000);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(FloatToFloat16(0x1.8p-25F), 0x0001);
  EXPECT_EQ(FloatToFloat16(-0.0F), 0x8000);
  EXPECT_TRUE(std::isnan(Float16ToFloat(FloatToFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(BFloat16Test, EveryValueSurvivesTheRoundTripAndTiesGoToEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = BFloat16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(FloatToBFloat16(value), bits);
  }
  EXPECT_EQ(FloatToBFloat16(1.0F + 0x1p-8F), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(1.0F + 0x3p-8F), 0x3f82);
}

TEST(MatrixTest, RowsStartOnCacheLines) {
  Matrix m(3, 17);
  EXPECT_EQ(m.stride(), 48);
  for (int64_t r = 0; r < 3; ++r) EXPECT_EQ(reinterpret_cast<uintptr_t>(m.row(r)) % 64, 0U);
}

// Else a column's lines would share a few sets of every cache.
TEST(MatrixTest, RowsAreAnOddNumberOfLinesApart) {
  for (const int64_t cols : {1, 16, 17, 704, 1009, 1024, 2048, 4096, 11008}) {
    const Matrix m(2, cols);
    EXPECT_EQ(m.stride() % 32, 16) << cols;
    EXPECT_GE(m.stride(), cols);
    EXPECT_LT(m.stride() - cols, 32);
  }
  EXPECT_EQ(Matrix(2, 0).stride(), 0);
}

}  // namespace
}  // namespace hydrant::tensor_test
