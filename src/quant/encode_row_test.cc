// SPDX-License-Identifier: Apache-2.0
#include "quant/encode_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "quant/dictionary.h"

namespace hydrant::quant::encode_row_test {
namespace {

using ::testing::Each;

// A row that has the tables to itself, or of a pair.
struct RowW4 {
  float scale = 0;
  std::vector<uint8_t> tables, codes;
};

float Decoded(const RowW4& row, size_t i) {
  return row.scale * DefaultEncoderW4().Entry(row.tables[i / 64], row.codes[i]);
}

std::array<RowW4, 2> EncodedPair(const std::vector<float>& first, const std::vector<float>& second) {
  RowPairW4 pair;
  DefaultEncoderW4().Encode({first, second}, pair);
  return {RowW4{pair.scales[0], pair.tables, pair.codes[0]}, RowW4{pair.scales[1], pair.tables, pair.codes[1]}};
}

RowW4 Encoded(const std::vector<float>& weights) { return EncodedPair(weights, std::vector<float>(weights.size()))[0]; }

double SquaredError(const std::vector<float>& weights, const RowW4& row) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double error = weights[i] - Decoded(row, i);
    sum += error * error;
  }
  return sum;
}

// The usual 4-bit baseline: groups of 128 with a float scale and zero point from minimum and maximum.
double MinMaxError(const std::vector<float>& weights) {
  double sum = 0;
  for (size_t begin = 0; begin < weights.size(); begin += 128) {
    const auto first = weights.begin() + static_cast<int64_t>(begin);
    const auto [low, high] = std::minmax_element(first, first + 128);
    const double step = (static_cast<double>(*high) - static_cast<double>(*low)) / 15;
    for (size_t i = begin; i < begin + 128; ++i) {
      const double code = std::nearbyint((weights[i] - static_cast<double>(*low)) / step);
      const double error = weights[i] - (static_cast<double>(*low) + code * step);
      sum += error * error;
    }
  }
  return sum;
}

std::vector<float> GaussianRow(uint32_t seed, size_t inputs, float sigma = 0.02F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(inputs);
  for (float& w : row) w = sigma * normal(random);
  return row;
}

TEST(DictionaryTest, TablesAscendAndStayInRange) {
  const uint8_t* dictionary = DefaultDictionary();
  for (int64_t t = 0; t < kernels::kNumTables; ++t) {
    const uint8_t* table = dictionary + t * kernels::kTableEntries;
    EXPECT_TRUE(std::is_sorted(table, table + kernels::kTableEntries)) << t;
    EXPECT_GE(table[0], 1) << t;
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(dictionary) % 64, 0U);
  EXPECT_EQ(dictionary[255 * 16], 1);  // -127 and 127 are in reach
  EXPECT_EQ(dictionary[255 * 16 + 15], 255);
  for (int64_t shape = 0; shape < kNumShapes; ++shape) {
    const uint8_t* table = dictionary + shape * kernels::kTableEntries;
    EXPECT_NE(std::find(table, table + 16, 128), table + 16) << "an exact zero";
  }
}

// Files keep their dictionary, but the same source should give the same file on every machine.
TEST(DictionaryTest, EntriesStayTheSame) {
  uint64_t hash = 1469598103934665603U;  // FNV-1a
  for (int64_t i = 0; i < kernels::kNumTables * kernels::kTableEntries; ++i) {
    hash = (hash ^ DefaultDictionary()[i]) * 1099511628211U;
  }
  EXPECT_EQ(hash, 17754745203946527303U);
}

TEST(EncodeRowTest, EightBitsAreWithinHalfAStep) {
  for (const size_t inputs : {1U, 63U, 64U, 200U}) {
    const std::vector<float> weights = GaussianRow(static_cast<uint32_t>(inputs), inputs);
    std::vector<int8_t> codes(inputs);
    const float scale = EncodeRowW8(weights, codes.data());
    float largest = 0;
    for (size_t i = 0; i < inputs; ++i) {
      EXPECT_LE(std::fabs(weights[i] - scale * static_cast<float>(codes[i])), 0.5001F * scale);
      EXPECT_GE(codes[i], -127);
      largest = std::max(largest, std::fabs(weights[i]));
    }
    EXPECT_NEAR(scale, largest / 127, 1e-7F);
  }
}

TEST(EncodeRowTest, RowsOfZerosAndDenormalsAreZero) {
  for (const float value : {0.0F, -0.0F, 1e-31F, 1e-40F}) {
    const std::vector<float> weights(130, value);
    std::vector<int8_t> codes(130, 1);
    EXPECT_EQ(EncodeRowW8(weights, codes.data()), 0.0F);
    EXPECT_THAT(codes, Each(0));
    const RowW4 row = Encoded(weights);
    EXPECT_EQ(row.scale, 0.0F);
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(Decoded(row, i), 0.0F);
  }
}

// Of both rows, or of one beside a row of zeros.
TEST(EncodeRowTest, AGroupOfZerosIsExactlyZero) {
  std::vector<float> weights = GaussianRow(3, 192);
  std::fill_n(weights.begin() + 64, 64, 0.0F);
  const RowW4 row = Encoded(weights);
  for (size_t i = 64; i < 128; ++i) EXPECT_EQ(Decoded(row, i), 0.0F);
  EXPECT_NE(Decoded(row, 0), 0.0F);
}

// What rows that share their tables pay, and rows that need not: relative squared error, min-max = 1. In the design
// each output has tables of its own, bent levels of a normal distribution: Gaussian 0.65, Student t 0.55, one weight of
// 25 sigma 0.71.
struct Errors {
  double alone = 0, in_pairs = 0, base = 0;

  void Add(const std::vector<float>& first, const std::vector<float>& second) {
    const auto pair = EncodedPair(first, second);
    in_pairs += SquaredError(first, pair[0]) + SquaredError(second, pair[1]);
    alone += SquaredError(first, Encoded(first)) + SquaredError(second, Encoded(second));
    base += MinMaxError(first) + MinMaxError(second);
  }
};

TEST(EncodeRowTest, SquaredErrorIsThatOfTheDesign) {
  Errors gaussian, student, outlier;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const std::vector<float> second = GaussianRow(seed + 100, 4096);
    std::vector<float> weights = GaussianRow(seed, 4096);
    gaussian.Add(weights, second);
    weights[100] = 0.02F * 25;
    outlier.Add(weights, second);
    std::mt19937 random(seed);
    std::student_t_distribution<float> t(5);
    for (float& w : weights) w = t(random);
    std::vector<float> other(4096);
    for (float& w : other) w = t(random);
    student.Add(weights, other);
  }
  const auto expect = [](const char* name, const Errors& errors, double alone, double in_pairs) {
    std::printf("squared error, min-max = 1: %s %.3f, in pairs %.3f\n", name, errors.alone / errors.base,
                errors.in_pairs / errors.base);
    EXPECT_LT(errors.alone / errors.base, alone) << name;
    EXPECT_LT(errors.in_pairs / errors.base, in_pairs) << name;
  };
  expect("Gaussian", gaussian, 0.65, 0.75);
  expect("Student t", student, 0.47, 0.59);
  expect("one weight of 25 sigma", outlier, 0.58, 0.76);
}

// One table suits both, because scales follow the rows' sizes.
TEST(EncodeRowTest, RowsOfAPairMayDifferInSize) {
  double alike = 0, far_apart = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const std::vector<float> first = GaussianRow(seed, 2048), second = GaussianRow(seed + 50, 2048);
    std::vector<float> small = second;
    for (float& w : small) w *= 1e-3F;
    alike += SquaredError(second, EncodedPair(first, second)[1]);
    far_apart += SquaredError(small, EncodedPair(first, small)[1]) * 1e6;
  }
  EXPECT_LT(far_apart, 1.1 * alike);
}

// Its scale would leave the other row 2 of 127 steps.
TEST(EncodeRowTest, ARowOfOneWeightDoesNotSpoilTheOther) {
  const std::vector<float> weights = GaussianRow(31, 65536);
  std::vector<float> spike(weights.size());
  spike[1000] = 3;
  const auto pair = EncodedPair(spike, weights);
  EXPECT_NEAR(Decoded(pair[0], 1000), 3, 0.1);
  double error = 0, alone = 0;
  const RowW4 own = Encoded(weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (i / 64 == 1000 / 64) continue;
    error += std::pow(static_cast<double>(weights[i] - Decoded(pair[1], i)), 2);
    alone += std::pow(static_cast<double>(weights[i] - Decoded(own, i)), 2);
  }
  std::printf("a row beside one of one weight: %.3f times the squared error alone\n", error / alone);
  EXPECT_LT(error, 1.5 * alone);
}

TEST(EncodeRowTest, ARowOfZerosLeavesTheTablesToTheOther) {
  const std::vector<float> zeros(320), weights = GaussianRow(12, 320);
  const auto first = EncodedPair(weights, zeros), second = EncodedPair(zeros, weights);
  EXPECT_EQ(first[0].codes, second[1].codes);
  EXPECT_EQ(first[0].tables, second[1].tables);
  for (size_t i = 0; i < zeros.size(); ++i) {
    EXPECT_EQ(Decoded(first[1], i), 0.0F);
    EXPECT_EQ(Decoded(second[0], i), 0.0F);
  }
}

// Every weight lies between its entry's neighbours: the nearest was taken, straight from the float.
TEST(EncodeRowTest, CodesAreTheNearestEntries) {
  const std::vector<float> rows[] = {GaussianRow(5, 1000), GaussianRow(6, 1000, 0.3F)};
  const std::array<RowW4, 2> pair = EncodedPair(rows[0], rows[1]);
  for (size_t r = 0; r < pair.size(); ++r) {
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const float error = std::fabs(rows[r][i] - Decoded(pair[r], i));
      for (uint8_t code = 0; code < 16; ++code) {
        const float other = pair[r].scale * DefaultEncoderW4().Entry(pair[r].tables[i / 64], code);
        EXPECT_LE(error, std::fabs(rows[r][i] - other) * 1.0001F) << i;
      }
    }
  }
}

// The tables that are tried, on their grid, against all 256 exactly.
TEST(EncodeRowTest, TheSearchFindsNearlyTheBestTable) {
  double found = 0, best = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const std::vector<float> weights = GaussianRow(seed + 50, 1024);
    const RowW4 row = Encoded(weights);
    for (size_t begin = 0; begin < weights.size(); begin += 64) {
      double least = 1e9;
      for (int t = 0; t < 256; ++t) {
        double error = 0, own = 0;
        for (size_t i = begin; i < begin + 64; ++i) {
          const auto table = static_cast<uint8_t>(t);
          const uint8_t code = DefaultEncoderW4().NearestCode(table, weights[i] / row.scale);
          const double e = weights[i] - row.scale * DefaultEncoderW4().Entry(table, code);
          error += e * e;
          own += std::pow(static_cast<double>(weights[i] - Decoded(row, i)), 2);
        }
        least = std::min(least, error);
        if (t == 0) found += own;
      }
      best += least;
    }
  }
  std::printf("search against all tables: %.4f\n", found / best);
  EXPECT_LT(found, 1.003 * best);
}

TEST(EncodeRowTest, OneOutlierDoesNotSpoilTheRow) {
  for (const float sigmas : {20.0F, 50.0F}) {
    std::vector<float> weights = GaussianRow(9, 4096);
    weights[77] = 0.02F * sigmas;
    const RowW4 row = Encoded(weights);
    double rest = SquaredError(weights, row) - std::pow(static_cast<double>(weights[77] - Decoded(row, 77)), 2);
    EXPECT_LT(std::sqrt(rest / 4095) / 0.02, 0.2);  // of the other weights' sigma; 0.10 without an outlier
  }
}

TEST(EncodeRowTest, ConstantAndSymmetricGroupsAreKept) {
  std::vector<float> weights(128, 0.3F);
  RowW4 row = Encoded(weights);
  for (size_t i = 0; i < 128; ++i) EXPECT_NEAR(Decoded(row, i), 0.3F, 0.3F * 0.01F);
  for (size_t i = 0; i < 128; ++i) weights[i] = i % 2 == 0 ? 0.3F : -0.3F;
  row = Encoded(weights);
  for (size_t i = 0; i < 128; ++i) EXPECT_NEAR(Decoded(row, i), weights[i], 0.3F * 0.01F);
}

// A few zeros at the end of a row must not widen or narrow the last group's range.
TEST(EncodeRowTest, AShortLastGroupIsEncodedByItsOwnWeights) {
  std::vector<float> weights(68, 0.01F);
  for (size_t i = 64; i < 68; ++i) weights[i] = 0.9F + 0.02F * static_cast<float>(i - 64);
  const RowW4 row = Encoded(weights);
  ASSERT_EQ(row.tables.size(), 2U);
  for (size_t i = 64; i < 68; ++i) EXPECT_NEAR(Decoded(row, i), weights[i], 0.06F);
}

// Up to the largest float: as the same rows times a power of two, and none becomes zeros because a product of sizes
// is infinite.
TEST(EncodeRowTest, HugeWeightsAreEncodedAsSmallOnes) {
  std::vector<float> first = GaussianRow(21, 256, 1e-4F), second = GaussianRow(22, 256, 1);
  first[17] = 2;
  const auto small = EncodedPair(first, second);
  constexpr float kFactor = 0x1p125F;
  for (std::vector<float>* row : {&first, &second}) {
    for (float& w : *row) w *= kFactor;
  }
  const auto huge = EncodedPair(first, second);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(huge[r].scale, small[r].scale * kFactor);
    EXPECT_EQ(huge[r].tables, small[r].tables);
    EXPECT_EQ(huge[r].codes, small[r].codes);
  }
}

}  // namespace
}  // namespace hydrant::quant::encode_row_test
