// SPDX-License-Identifier: Apache-2.0
#include "quant/encode_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "quant/dictionary.h"

namespace hydrant::quant {
namespace {

using ::testing::Each;

float Decoded(const RowW4& row, size_t i) {
  return row.scale * DefaultEncoderW4().Entry(row.tables[i / 64], row.codes[i]);
}

RowW4 Encoded(const std::vector<float>& weights, std::span<const float> importance = {}) {
  RowW4 row;
  DefaultEncoderW4().Encode(weights, importance, row);
  return row;
}

double SquaredError(const std::vector<float>& weights, const RowW4& row, std::span<const float> importance = {}) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double error = weights[i] - Decoded(row, i);
    sum += error * error * (importance.empty() ? 1.0 : static_cast<double>(importance[i]));
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

std::vector<float> GaussianRow(uint32_t seed, size_t inputs) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(inputs);
  for (float& w : row) w = 0.02F * normal(random);
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
  for (int64_t skew = 0; skew < kNumSkews; ++skew) {
    const uint8_t* table = dictionary + skew * kernels::kTableEntries;
    EXPECT_NE(std::find(table, table + 16, 128), table + 16) << "an exact zero";
  }
}

// Files keep their dictionary, but the same source should give the same file on every machine.
TEST(DictionaryTest, EntriesAreThoseOfTheFirstVersion) {
  uint64_t hash = 1469598103934665603U;  // FNV-1a
  for (int64_t i = 0; i < kernels::kNumTables * kernels::kTableEntries; ++i) {
    hash = (hash ^ DefaultDictionary()[i]) * 1099511628211U;
  }
  EXPECT_EQ(hash, 5182047198207697795U);
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

TEST(EncodeRowTest, AGroupOfZerosIsExactlyZero) {
  std::vector<float> weights = GaussianRow(3, 192);
  std::fill_n(weights.begin() + 64, 64, 0.0F);
  const RowW4 row = Encoded(weights);
  for (size_t i = 64; i < 128; ++i) EXPECT_EQ(Decoded(row, i), 0.0F);
  EXPECT_NE(Decoded(row, 0), 0.0F);
}

// Relative squared error of the design's table (Gaussian 0.65, Student t 0.55, one weight of 25 sigma 0.71), with room
// for other rows.
TEST(EncodeRowTest, SquaredErrorIsThatOfTheDesign) {
  double gaussian = 0, student = 0, outlier = 0;
  double gaussian_base = 0, student_base = 0, outlier_base = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::vector<float> weights = GaussianRow(seed, 4096);
    gaussian += SquaredError(weights, Encoded(weights));
    gaussian_base += MinMaxError(weights);
    weights[100] = 0.02F * 25;
    outlier += SquaredError(weights, Encoded(weights));
    outlier_base += MinMaxError(weights);
    std::mt19937 random(seed);
    std::student_t_distribution<float> t(5);
    for (float& w : weights) w = t(random);
    student += SquaredError(weights, Encoded(weights));
    student_base += MinMaxError(weights);
  }
  std::printf("squared error, min-max = 1: Gaussian %.3f, Student t %.3f, outlier %.3f\n", gaussian / gaussian_base,
              student / student_base, outlier / outlier_base);
  EXPECT_LT(gaussian / gaussian_base, 0.67);
  EXPECT_LT(student / student_base, 0.60);
  EXPECT_LT(outlier / outlier_base, 0.82);
}

// Every weight lies between its entry's neighbours: the nearest was taken, straight from the float.
TEST(EncodeRowTest, CodesAreTheNearestEntries) {
  const std::vector<float> weights = GaussianRow(5, 1000);
  const RowW4 row = Encoded(weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float error = std::fabs(weights[i] - Decoded(row, i));
    for (uint8_t code = 0; code < 16; ++code) {
      const float other = row.scale * DefaultEncoderW4().Entry(row.tables[i / 64], code);
      EXPECT_LE(error, std::fabs(weights[i] - other) * 1.0001F) << i;
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

TEST(EncodeRowTest, ImportanceMovesErrorToWhereItCountsLess) {
  const std::vector<float> weights = GaussianRow(21, 2048);
  std::vector<float> importance(weights.size(), 0.01F);
  for (size_t i = 0; i < importance.size(); i += 8) importance[i] = 4;
  const double without = SquaredError(weights, Encoded(weights), importance);
  const double with = SquaredError(weights, Encoded(weights, importance), importance);
  EXPECT_LT(with, 0.9 * without);
}

}  // namespace
}  // namespace hydrant::quant
