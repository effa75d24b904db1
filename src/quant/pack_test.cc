// SPDX-License-Identifier: Apache-2.0
#include "quant/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "kernels/ops/matmul.h"

namespace hydrant::quant::pack_test {
namespace {

using ::testing::HasSubstr;

struct Source {
  std::vector<uint8_t> bytes;
  FloatMatrix matrix;
};

void Store(DType dtype, float value, uint8_t* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? FloatToBFloat16(value) : FloatToFloat16(value);
  std::memcpy(to, &bits, 2);
}

// Gaussian weights in a buffer that starts at an odd address, as tensors in files may.
std::unique_ptr<Source> RandomSource(DType dtype, int64_t outputs, int64_t inputs, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  auto source = std::make_unique<Source>();
  source->bytes.resize(static_cast<size_t>(outputs * inputs) * SizeOf(dtype) + 1);
  uint8_t* data = source->bytes.data() + 1;
  for (int64_t i = 0; i < outputs * inputs; ++i) {
    Store(dtype, 0.05F * normal(random), data + static_cast<size_t>(i) * SizeOf(dtype));
  }
  source->matrix.weight = {data, dtype, {outputs, inputs}, nullptr};
  source->matrix.name = "w";
  source->matrix.file = "m.safetensors";
  return source;
}

std::string Refusal(const FloatMatrix& matrix, WeightFormat format) {
  base::ThreadPool pool(1, false);
  try {
    Pack(matrix, format, pool);
    return "";
  } catch (const FileError& e) {
    return e.what();
  }
}

TEST(PackTest, WeightsComeBackWithinTheFormatsError) {
  base::ThreadPool pool(1, false);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& [outputs, inputs] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {16, 128}, {17, 130}, {33, 172}, {5, 300}, {48, 64}}) {
      for (const WeightFormat format : {WeightFormat::kW8A8, WeightFormat::kW4A16}) {
        SCOPED_TRACE(std::string(NameOf(format)) + " " + std::to_string(outputs) + " x " + std::to_string(inputs));
        const auto source = RandomSource(dtype, outputs, inputs, 1);
        const std::vector<float> weights = ToFloats(source->matrix.weight);
        const auto packed = Pack(source->matrix, format, pool);
        EXPECT_EQ(packed->matrix.outputs, outputs);
        EXPECT_EQ(packed->matrix.inputs, inputs);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(packed->matrix.panels) % 64, 0U);
        const std::vector<float> unpacked = Unpack(packed->matrix);
        ASSERT_EQ(unpacked.size(), weights.size());
        double error = 0, power = 0;
        for (size_t i = 0; i < weights.size(); ++i) {
          const float scale = packed->matrix.row_scales[i / static_cast<size_t>(inputs)];
          if (packed->matrix.type == kernels::PackedType::kW8) {
            EXPECT_LE(std::fabs(weights[i] - unpacked[i]), 0.5001F * scale);
          }
          error += std::pow(static_cast<double>(weights[i] - unpacked[i]), 2);
          power += std::pow(static_cast<double>(weights[i]), 2);
        }
        EXPECT_LT(error, power * (packed->matrix.type == kernels::PackedType::kW8 ? 1e-3 : 0.015));
      }
    }
  }
}

TEST(PackTest, PaddingIsZero) {
  base::ThreadPool pool(1, false);
  const auto source = RandomSource(DType::kBF16, 17, 172, 4);
  const auto w8 = Pack(source->matrix, WeightFormat::kW8A8, pool);
  for (int64_t o = 17; o < 32; ++o) EXPECT_EQ(w8->matrix.row_scales[o], 0.0F);
  const uint8_t* panel = w8->matrix.panels + w8->matrix.panel_bytes();
  for (int64_t i = 0; i < w8->matrix.panel_bytes(); ++i) {
    const bool inside = i / 64 % 16 == 0 && (i / 64 / 16) * 64 + i % 64 < 172;
    EXPECT_TRUE(inside || panel[i] == 128) << i;
  }
}

TEST(PackTest, BytesDoNotDependOnThreads) {
  base::ThreadPool one(1, false), three(3, false);
  for (const WeightFormat format : {WeightFormat::kW8A8, WeightFormat::kW4A8}) {
    const auto source = RandomSource(DType::kBF16, 100, 260, 7);
    const auto a = Pack(source->matrix, format, one);
    const auto b = Pack(source->matrix, format, three);
    ASSERT_EQ(a->matrix.bytes(), b->matrix.bytes());
    EXPECT_EQ(std::memcmp(a->matrix.panels, b->matrix.panels,
                          static_cast<size_t>(a->matrix.num_panels() * a->matrix.panel_bytes())),
              0);
    EXPECT_EQ(std::memcmp(a->matrix.row_scales, b->matrix.row_scales,
                          static_cast<size_t>(a->matrix.num_panels()) * 16 * sizeof(float)),
              0);
  }
}

TEST(PackTest, QuadsAndOctetsAreTheSameWeights) {
  base::ThreadPool pool(2, false);
  for (const WeightFormat format : {WeightFormat::kW8A8, WeightFormat::kW4A8, WeightFormat::kW8A16}) {
    for (const auto& [outputs, inputs] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {33, 172}, {64, 256}}) {
      const auto source = RandomSource(DType::kBF16, outputs, inputs, 9);
      const auto packed = Pack(source->matrix, format, pool);
      const auto interleaved = InLayout(*packed, kernels::PackedLayout::kInterleaved, pool);
      EXPECT_EQ(interleaved->matrix.type,
                Is4Bit(packed->format) ? kernels::PackedType::kOctets : kernels::PackedType::kQuads);
      EXPECT_EQ(interleaved->format, packed->format);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(interleaved->matrix.panels) % 64, 0U);
      EXPECT_EQ(Unpack(interleaved->matrix), Unpack(packed->matrix))
          << NameOf(format) << " " << outputs << " x " << inputs;
      const auto lines = InLayout(*interleaved, kernels::PackedLayout::kLines, pool);
      EXPECT_EQ(lines->matrix.type, packed->matrix.type);
      EXPECT_EQ(std::memcmp(lines->matrix.panels, packed->matrix.panels,
                            static_cast<size_t>(packed->matrix.num_panels() * packed->matrix.panel_bytes())),
                0)
          << NameOf(format) << " " << outputs << " x " << inputs;
    }
  }
}

// A table number in an octets panel is that of both its outputs.
TEST(PackTest, TwoOutputsShareTheirTables) {
  base::ThreadPool pool(1, false);
  const auto packed = Pack(RandomSource(DType::kF32, 19, 200, 14)->matrix, WeightFormat::kW4A8, pool);
  const kernels::PackedMatrix& m = packed->matrix;
  for (int64_t p = 0; p < m.num_panels(); ++p) {
    for (int64_t i = 0; i < 2 * 16 * 2; i += 4) {  // [2 steps][16 outputs][2 halves]
      const uint8_t* tables = m.panels + p * m.panel_bytes() + i;
      EXPECT_EQ(std::memcmp(tables, tables + 2, 2), 0) << "panel " << p << " at " << i;
    }
  }
}

// Only a file that another tool wrote has such.
TEST(PackTest, LinesWithTablesForEachOutputAreRefusedAsOctets) {
  base::ThreadPool pool(2, false);
  auto packed = *Pack(RandomSource(DType::kF32, 40, 300, 15)->matrix, WeightFormat::kW4A8, pool);
  packed.file = "m.safetensors";
  packed.name = "w";
  auto* panels = const_cast<uint8_t*>(packed.matrix.panels);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  panels[packed.matrix.panel_bytes() + kernels::TablesAtW4(2) + 2 * 7 + 1] ^= 1;
  try {
    InLayout(packed, kernels::PackedLayout::kInterleaved, pool);
    FAIL() << "not refused";
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("m.safetensors: tensor 'w' has different tables for rows 22 and 23, expected "
                                        "the same (step 2)"));
  }
}

TEST(PackTest, ASliceIsPackedAsAMatrixOfItsOwn) {
  base::ThreadPool pool(1, false);
  const auto source = RandomSource(DType::kF32, 20, 512, 8);
  FloatMatrix slice = source->matrix;
  slice.first_input = 256;
  slice.num_inputs = 200;
  const std::vector<float> whole = ToFloats(source->matrix.weight);
  const auto packed = Pack(slice, WeightFormat::kW8A8, pool);
  const std::vector<float> unpacked = Unpack(packed->matrix);
  for (int64_t o = 0; o < 20; ++o) {
    for (int64_t i = 0; i < 200; ++i) {
      EXPECT_NEAR(unpacked[static_cast<size_t>(o * 200 + i)], whole[static_cast<size_t>(o * 512 + 256 + i)], 2e-3F);
    }
  }
}

TEST(PackTest, FewInputsStayInEightBits) {
  base::ThreadPool pool(1, false);
  const auto source = RandomSource(DType::kF32, 4, 127, 9);
  EXPECT_EQ(Pack(source->matrix, WeightFormat::kW4A8, pool)->format, WeightFormat::kW8A8);
  EXPECT_EQ(Pack(source->matrix, WeightFormat::kW4A16, pool)->format, WeightFormat::kW8A16);
  EXPECT_EQ(FormatFor(WeightFormat::kW4A8, 128), WeightFormat::kW4A8);
}

TEST(PackTest, WeightsThatAreNoNumbersAreRefusedByPlace) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto source = RandomSource(dtype, 40, 130, 10);
    Store(dtype, std::numeric_limits<float>::quiet_NaN(), source->bytes.data() + 1 + (37 * 130 + 129) * SizeOf(dtype));
    EXPECT_THAT(Refusal(source->matrix, WeightFormat::kW4A8),
                HasSubstr("m.safetensors: tensor 'w' has NaN in row 37, column 129"));
    Store(dtype, -std::numeric_limits<float>::infinity(), source->bytes.data() + 1);
    EXPECT_THAT(Refusal(source->matrix, WeightFormat::kW8A8), HasSubstr("has infinity in row 0, column 0"));
  }
}

TEST(PackTest, TooManyInputsAreRefused) {
  const auto source = RandomSource(DType::kBF16, 1, kernels::kMaxPackedInputs + 1, 11);
  EXPECT_THAT(Refusal(source->matrix, WeightFormat::kW8A8), HasSubstr("has 131073 inputs, at most 131072"));
}

// The layout is what the kernels read: a product through each target against one with the unpacked weights.
TEST(PackTest, KernelsReadWhatWasPacked) {
  base::ThreadPool pool(1, false);
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    kernels::Queue queue{.pool = &pool, .table = table};
    for (const WeightFormat format :
         {WeightFormat::kW8A8, WeightFormat::kW4A8, WeightFormat::kW8A16, WeightFormat::kW4A16}) {
      const auto source = RandomSource(DType::kF32, 37, 300, 12);
      auto packed = Pack(source->matrix, format, pool);
      if (!table->Reads(packed->matrix.type)) packed = InLayout(*packed, table->layout(), pool);
      const std::vector<float> unpacked = Unpack(packed->matrix);
      std::mt19937 random(13);
      std::normal_distribution<float> normal;
      Matrix x(3, 300), out(3, 37);
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t i = 0; i < 300; ++i) x.row(r)[i] = normal(random);
      }
      kernels::Matmul(queue, x, kernels::Weight::Of(packed->matrix, HasTwoPlanes(format)), {}, out);
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t o = 0; o < 37; ++o) {
          double expected = 0;
          for (int64_t i = 0; i < 300; ++i) expected += x.row(r)[i] * unpacked[static_cast<size_t>(o * 300 + i)];
          EXPECT_NEAR(out.row(r)[o], expected, HasTwoPlanes(format) ? 2e-4 : 0.05) << table->name << NameOf(format);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::quant::pack_test
