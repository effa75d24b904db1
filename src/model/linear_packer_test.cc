// SPDX-License-Identifier: Apache-2.0
#include "model/linear_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "hydrant/error.h"
#include "quant/pack.h"

namespace hydrant::model::linear_packer_test {
namespace {

using quant::WeightFormat;
using ::testing::HasSubstr;

Linear FloatLinear(std::vector<float>& values, int64_t outputs, int64_t inputs) {
  Linear linear;
  linear.name = "w";
  linear.file = "m";
  linear.weight = {reinterpret_cast<const uint8_t*>(values.data()), DType::kF32, {outputs, inputs}, nullptr};
  return linear;
}

class LinearPackerTest : public ::testing::Test {
 protected:
  LinearPackerTest() {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i % 37) / 37 - 0.4F;
  }
  std::vector<float> values_ = std::vector<float>(20 * 256);
  base::ThreadPool pool_{1, false};
  std::vector<double> shares_;
  LinearPacker packer_{&pool_, [this](double share) { shares_.push_back(share); }};
};

TEST_F(LinearPackerTest, WithoutAFormatLayersStay) {
  Linear linear = FloatLinear(values_, 20, 256);
  packer_.Add(linear, {});
  packer_.Add(linear, {.format = WeightFormat::kStored});
  const PackReport report = packer_.Run();
  EXPECT_EQ(report.bytes_after, 0U);
  EXPECT_FALSE(linear.packed);
  EXPECT_EQ(linear.weight.data, reinterpret_cast<const uint8_t*>(values_.data()));
}

TEST_F(LinearPackerTest, TiedLayersAreOneCopyAndSlicesAreTheirOwn) {
  Linear first = FloatLinear(values_, 20, 256), tied = first, left = first, right = first;
  left.num_inputs = right.num_inputs = right.first_input = 128;
  for (Linear* linear : {&first, &tied, &left, &right}) packer_.Add(*linear, {.format = WeightFormat::kW8A8});
  const PackReport report = packer_.Run();
  EXPECT_EQ(first.packed, tied.packed);
  EXPECT_NE(left.packed, right.packed);
  EXPECT_EQ(right.packed->matrix.inputs, 128);
  EXPECT_EQ(right.num_inputs, -1);
  EXPECT_TRUE(first.weight.empty());
  EXPECT_EQ(report.bytes_before, values_.size() * 4);
  EXPECT_EQ(report.bytes_freed, values_.size() * 4);
  EXPECT_EQ(report.bytes_after, first.bytes() + left.bytes() + right.bytes());
  const std::vector<float> unpacked = quant::Unpack(right.packed->matrix);
  EXPECT_NEAR(unpacked[0], values_[128], 0.005);
  ASSERT_EQ(shares_.size(), 5U);
  EXPECT_EQ(shares_[0], 0);
  EXPECT_EQ(shares_[4], 1);
  EXPECT_NEAR(shares_[3], 2.5 / 3, 1e-9);
}

TEST_F(LinearPackerTest, FloatsThatAreKeptDoNotCountAsFreed) {
  Linear linear = FloatLinear(values_, 20, 256);
  packer_.Keep(linear.weight);
  packer_.Add(linear, {.format = WeightFormat::kW8A8});
  EXPECT_EQ(packer_.Run().bytes_freed, 0U);
}

TEST_F(LinearPackerTest, FloatsBecomeOtherFloats) {
  Linear bf16 = FloatLinear(values_, 20, 256), f32 = bf16;
  packer_.Add(bf16, {.format = WeightFormat::kBF16});
  packer_.Add(f32, {.format = WeightFormat::kF32});
  EXPECT_EQ(packer_.Run().bytes_after, values_.size() * 2);
  EXPECT_EQ(f32.weight.data, reinterpret_cast<const uint8_t*>(values_.data()));
  ASSERT_EQ(bf16.weight.dtype, DType::kBF16);
  const std::vector<float> rounded = ToFloats(bf16.weight);
  for (size_t i = 0; i < values_.size(); ++i) {
    EXPECT_EQ(rounded[i], BFloat16ToFloat(FloatToBFloat16(values_[i])));
  }
  LinearPacker back(&pool_, {});
  back.Add(bf16, {.format = WeightFormat::kF32});
  back.Run();
  EXPECT_EQ(ToFloats(bf16.weight), rounded);
}

TEST_F(LinearPackerTest, PackedLayersKeepTheirBits) {
  Linear linear = FloatLinear(values_, 20, 256);
  packer_.Add(linear, {.format = WeightFormat::kW4A8});
  packer_.Run();
  const uint8_t* panels = linear.packed->matrix.panels;
  packer_.Add(linear, {.format = WeightFormat::kW4A16});
  EXPECT_EQ(linear.packed->format, WeightFormat::kW4A16);
  EXPECT_EQ(linear.packed->matrix.panels, panels);
  packer_.Add(linear, {.format = WeightFormat::kW8A8, .only_floats = true});
  EXPECT_EQ(linear.packed->format, WeightFormat::kW4A16);
  for (const WeightFormat format : {WeightFormat::kW8A8, WeightFormat::kBF16, WeightFormat::kF32}) {
    try {
      packer_.Add(linear, {.format = format});
      FAIL() << "no error";
    } catch (const FileError& e) {
      EXPECT_THAT(e.what(), HasSubstr(std::string("m: tensor 'w' is packed in w4a16, expected floats for ") +
                                      quant::NameOf(format)));
    }
  }
}

TEST_F(LinearPackerTest, PackedLayersDoNotBecomeFloats) {
  Linear linear = FloatLinear(values_, 20, 256);
  packer_.Add(linear, {.format = WeightFormat::kW8A8});
  packer_.Run();
  EXPECT_THROW(packer_.Add(linear, {.format = WeightFormat::kBF16}), FileError);
  EXPECT_THROW(packer_.Add(linear, {.format = WeightFormat::kW4A8}), FileError);
  packer_.Add(linear, {.format = WeightFormat::kStored});
  EXPECT_EQ(linear.packed->format, WeightFormat::kW8A8);
}

TEST(LmHeadFormatTest, FourBitsBecomeEight) {
  EXPECT_EQ(LmHeadFormat(WeightFormat::kW4A8), WeightFormat::kW8A8);
  EXPECT_EQ(LmHeadFormat(WeightFormat::kW4A16), WeightFormat::kW8A16);
  EXPECT_EQ(LmHeadFormat(WeightFormat::kBF16), WeightFormat::kBF16);
}

}  // namespace
}  // namespace hydrant::model::linear_packer_test
