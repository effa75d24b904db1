// SPDX-License-Identifier: Apache-2.0
#include "model/weight_arranger.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/test_util/test_util.h"
#include "quant/pack.h"

namespace hydrant::model::weight_arranger_test {
namespace {

using kernels::PackedType;
using quant::WeightFormat;

class WeightArrangerTest : public ::testing::Test {
 protected:
  WeightArrangerTest() { table_.reads_lines = false; }

  Linear Packed(WeightFormat format) {
    const std::vector<float> floats = kernels::RandomFloats(40 * 256, ++seed_);
    quant::FloatMatrix matrix;
    matrix.weight = {reinterpret_cast<const uint8_t*>(floats.data()), DType::kF32, {40, 256}, nullptr};
    Linear linear;
    linear.packed = quant::Pack(matrix, format, pool_);
    return linear;
  }

  uint32_t seed_ = 0;
  base::ThreadPool pool_{2, false};
  kernels::KernelTable table_ = kernels::PortableKernels();
};

TEST_F(WeightArrangerTest, WhatKernelsReadStays) {
  WeightArranger arranger(&kernels::PortableKernels(), &pool_);
  Linear linear = Packed(WeightFormat::kW4A8), floats;
  const auto before = linear.packed;
  arranger.Arrange(linear);
  arranger.Arrange(floats);
  EXPECT_EQ(linear.packed, before);
  EXPECT_FALSE(floats.packed);
}

TEST_F(WeightArrangerTest, TheRestIsInterleavedOnceAndFreed) {
  WeightArranger arranger(&table_, &pool_);
  for (const WeightFormat format : {WeightFormat::kW8A8, WeightFormat::kW4A16}) {
    Linear first = Packed(format), tied = first, other = Packed(format);
    const std::weak_ptr<const quant::PackedWeight> source = first.packed;
    const std::vector<float> weights = quant::Unpack(first.packed->matrix);
    arranger.Arrange(first);
    EXPECT_FALSE(source.expired());  // `tied` has it
    arranger.Arrange(tied);
    arranger.Arrange(other);
    EXPECT_TRUE(source.expired());
    EXPECT_EQ(first.packed->matrix.type, quant::Is4Bit(format) ? PackedType::kOctets : PackedType::kQuads);
    EXPECT_EQ(first.packed->format, format);
    EXPECT_EQ(first.packed, tied.packed);
    EXPECT_NE(first.packed, other.packed);
    EXPECT_EQ(quant::Unpack(first.packed->matrix), weights);
    const auto arranged = first.packed;
    arranger.Arrange(first);
    EXPECT_EQ(first.packed, arranged);
    kernels::KernelTable of_lines = kernels::PortableKernels();
    of_lines.reads_interleaved = false;
    WeightArranger(&of_lines, &pool_).Arrange(first);
    EXPECT_EQ(LayoutOf(first.packed->matrix.type), kernels::PackedLayout::kLines);
    EXPECT_EQ(quant::Unpack(first.packed->matrix), weights);
  }
}

}  // namespace
}  // namespace hydrant::model::weight_arranger_test
