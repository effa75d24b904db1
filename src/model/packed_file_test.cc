// SPDX-License-Identifier: Apache-2.0
#include "model/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "hydrant/error.h"

namespace hydrant::model::packed_file_test {
namespace {

using ::testing::HasSubstr;

// A packed tensor of 20 x 300 weights in two slices of 150, in memory of its own, with room to spoil any part.
class Stored {
 public:
  explicit Stored(const char* format) {
    kernels::PackedMatrix shape;
    shape.type = format[1] == '4' ? kernels::PackedType::kW4 : kernels::PackedType::kW8;
    shape.outputs = 20;
    shape.inputs = 150;
    panels_.resize(static_cast<size_t>(2 * shape.num_panels() * shape.panel_bytes()) / 64 + 1);
    scales_.resize(2 * 32, 0.5F);
    for (Line& line : dictionary_) std::memset(line.bytes, 7, sizeof line.bytes);
    packed.format = format;
    packed.shape = {20, 300};
    packed.slices = 2;
    packed.scales = {reinterpret_cast<const uint8_t*>(scales_.data()), DType::kF32, {2, 32}, nullptr};
    packed.dictionary = {dictionary_[0].bytes, DType::kU8, {256, 16}, nullptr};
    tensor.view = {panels_[0].bytes, DType::kU8, {2, shape.num_panels(), shape.panel_bytes()}, nullptr};
    tensor.file = "m.safetensors";
  }

  std::vector<std::shared_ptr<const quant::PackedWeight>> Read(int64_t slices = 2) {
    tensor.packed = std::make_shared<const checkpoint::PackedTensor>(packed);
    return PackedFromFile(tensor, "w", slices);
  }
  std::string Refusal(int64_t slices = 2) {
    try {
      Read(slices);
      return "";
    } catch (const FileError& e) {
      return e.what();
    }
  }

  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> panels_;
  std::vector<float> scales_;
  std::array<Line, 64> dictionary_;
  checkpoint::PackedTensor packed;
  checkpoint::StoredTensor tensor;
};

TEST(PackedFileTest, SlicesAreViewsOfTheFile) {
  for (const char* format : {"w8a8", "w4a16"}) {
    Stored stored(format);
    const auto weights = stored.Read();
    ASSERT_EQ(weights.size(), 2U);
    EXPECT_STREQ(quant::NameOf(weights[1]->format), format);
    EXPECT_EQ(weights[1]->matrix.outputs, 20);
    EXPECT_EQ(weights[1]->matrix.inputs, 150);
    EXPECT_EQ(weights[0]->matrix.panels, stored.panels_[0].bytes);
    EXPECT_EQ(weights[1]->matrix.panels, stored.panels_[0].bytes + 2 * weights[0]->matrix.panel_bytes());
    EXPECT_EQ(weights[1]->matrix.row_scales, stored.scales_.data() + 32);
    EXPECT_EQ(weights[0]->matrix.dictionary, format[1] == '4' ? stored.dictionary_[0].bytes : nullptr);
    EXPECT_EQ(LayoutOf(weights[0]->matrix.type), kernels::PackedLayout::kLines);
    stored.packed.interleaved = true;
    const auto interleaved = stored.Read();
    EXPECT_EQ(LayoutOf(interleaved[1]->matrix.type), kernels::PackedLayout::kInterleaved);
    EXPECT_EQ(interleaved[1]->matrix.panels, weights[1]->matrix.panels);
    EXPECT_EQ(interleaved[0]->matrix.dictionary, weights[0]->matrix.dictionary);
  }
}

TEST(PackedFileTest, SizesThatDoNotFollowFromTheLayoutAreRefused) {
  Stored panels("w8a8");
  ++panels.tensor.view.shape[2];
  EXPECT_THAT(panels.Refusal(), HasSubstr("m.safetensors: tensor 'w' has panels [2, 2, 4097] and scales [2, 32], "
                                          "expected [2, 2, 4096] and [2, 32]"));
  Stored scales("w8a8");
  scales.packed.scales.shape[1] = 31;
  EXPECT_THAT(scales.Refusal(), HasSubstr("scales [2, 31]"));
  Stored shape("w8a8");
  shape.packed.shape = {int64_t{1} << 40, 300};
  EXPECT_THAT(shape.Refusal(), HasSubstr("expected [2, 68719476736, 4096]"));
  shape.packed.shape = {20, int64_t{1} << 40};
  EXPECT_THAT(shape.Refusal(), HasSubstr("inputs in a slice, at most 131072"));
  Stored other("w4a8");
  other.packed.format = "w8a8";
  EXPECT_THAT(other.Refusal(), HasSubstr("has panels"));
}

TEST(PackedFileTest, FormatsAndSlicesThatAreNotWantedAreRefused) {
  Stored stored("w8a8");
  EXPECT_THAT(stored.Refusal(3), HasSubstr("is packed in 2 slices, expected 3"));
  for (const char* format : {"w2a8", "bf16", "stored", ""}) {
    stored.packed.format = format;
    EXPECT_THAT(stored.Refusal(), HasSubstr("expected w8a8, w4a8, w8a16 or w4a16"));
  }
}

TEST(PackedFileTest, WhatIsNotAlignedIsRefused) {
  Stored stored("w8a8");
  stored.tensor.view.data += 32;
  EXPECT_THAT(stored.Refusal(), HasSubstr("tensor 'w' does not lie at a multiple of 64 bytes"));
  Stored scales("w8a8");
  scales.packed.scales.data += 2;
  EXPECT_THAT(scales.Refusal(), HasSubstr("tensor 'w.scales' does not lie at a multiple of 4"));
}

TEST(PackedFileTest, ADictionaryThatCannotBeUsedIsRefused) {
  Stored absent("w4a8");
  absent.packed.dictionary = {};
  EXPECT_THAT(absent.Refusal(), HasSubstr("'hydrant.dictionary' [256, 16], which is missing"));
  Stored shape("w4a8");
  shape.packed.dictionary.shape = {255, 16};
  EXPECT_THAT(shape.Refusal(), HasSubstr("which is [255, 16]"));
  Stored zero("w4a8");
  zero.dictionary_[63].bytes[63] = 0;
  EXPECT_THAT(zero.Refusal(), HasSubstr("has an entry of 0"));
  Stored moved("w4a8");
  moved.packed.dictionary.data += 1;
  EXPECT_THAT(moved.Refusal(), HasSubstr("'hydrant.dictionary' does not lie"));
}

TEST(PackedFileTest, ScalesThatAreNoNumbersAreRefused) {
  Stored stored("w8a8");
  stored.scales_[33] = std::nanf("");
  EXPECT_THAT(stored.Refusal(), HasSubstr("tensor 'w' has no finite scale in row 33"));
}

}  // namespace
}  // namespace hydrant::model::packed_file_test
