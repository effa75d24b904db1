// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/compare.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace hydrant::checkpoint::compare_test {
namespace {

struct Tensor {
  std::vector<uint8_t> bytes;
  TensorView view;
};

Tensor Of(DType dtype, const std::vector<float>& values) {
  Tensor tensor;
  for (const float value : values) {
    uint32_t bits = 0;
    if (dtype == DType::kF32) std::memcpy(&bits, &value, 4);
    if (dtype == DType::kBF16) bits = FloatToBFloat16(value);
    if (dtype == DType::kF16) bits = FloatToFloat16(value);
    for (size_t i = 0; i < SizeOf(dtype); ++i) tensor.bytes.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  }
  tensor.view = {tensor.bytes.data(), dtype, {static_cast<int64_t>(values.size())}, nullptr};
  return tensor;
}

TEST(CompareTest, TypesDoNotMatterValuesDo) {
  const std::vector<float> values = {0, -0.0F, 1, -2.5F, 0.0078125F, std::numeric_limits<float>::quiet_NaN()};
  for (const DType a : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType b : {DType::kF32, DType::kBF16, DType::kF16}) {
      EXPECT_TRUE(SameValues(Of(a, values).view, Of(b, values).view)) << NameOf(a) << NameOf(b);
    }
  }
  EXPECT_TRUE(SameValues(Of(DType::kF32, {0.0F}).view, Of(DType::kF32, {-0.0F}).view));
  EXPECT_FALSE(SameValues(Of(DType::kF32, {1.0F}).view, Of(DType::kF32, {1.0000001F}).view));
  EXPECT_FALSE(SameValues(Of(DType::kF32, {1.0F}).view, Of(DType::kF32, {1.0F, 2.0F}).view));
  std::vector<float> many(100'000, 1);
  const Tensor before = Of(DType::kBF16, many);
  many.back() = 2;  // the last of several pieces
  EXPECT_FALSE(SameValues(before.view, Of(DType::kBF16, many).view));
  EXPECT_FALSE(SameButRounded(before.view, Of(DType::kF32, many).view));
}

TEST(CompareTest, CopiesInANarrowerTypeAreTheSameButRounded) {
  const std::vector<float> values = {1.2345678F, -3e-5F, 1e-7F, 123.456F, 0};
  for (const DType narrow : {DType::kBF16, DType::kF16}) {
    EXPECT_FALSE(SameValues(Of(DType::kF32, values).view, Of(narrow, values).view));
    EXPECT_TRUE(SameButRounded(Of(DType::kF32, values).view, Of(narrow, values).view));
  }
  EXPECT_TRUE(SameButRounded(Of(DType::kBF16, values).view, Of(DType::kF16, values).view));
  EXPECT_FALSE(SameButRounded(Of(DType::kF32, {1}).view, Of(DType::kF32, {1.01F}).view));
  EXPECT_FALSE(SameButRounded(Of(DType::kF32, {1}).view, Of(DType::kF32, {-1}).view));
}

TEST(CompareTest, ZerosOfBothSignsAreZero) {
  EXPECT_TRUE(AllZero(Of(DType::kBF16, {0, -0.0F}).view));
  EXPECT_FALSE(AllZero(Of(DType::kF32, {0, 1e-40F}).view));
}

}  // namespace
}  // namespace hydrant::checkpoint::compare_test
