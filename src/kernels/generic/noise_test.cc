// SPDX-License-Identifier: Apache-2.0
#include "kernels/generic/noise_inl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/generic/math_inl.h"
#include "kernels/generic/philox.h"
#include "kernels/kernels.h"

namespace hydrant::kernels::noise_test {
namespace {

void ExpectPhilox(PhiloxBlock counter, uint32_t key0, uint32_t key1, PhiloxBlock expected) {
  const PhiloxBlock got = Philox4x32(counter, key0, key1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], expected.word[i]) << i;
}

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, KnownAnswers) {
  ExpectPhilox({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  constexpr uint32_t kOnes = 0xffffffff;
  ExpectPhilox({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  ExpectPhilox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

// Distance in units in the last place of the exact value, which long double holds with 11 bits to spare.
double UlpError(double got, long double exact) {
  const double ulp = std::abs(std::nextafter(static_cast<double>(exact), INFINITY) - static_cast<double>(exact));
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) / ulp);
}

TEST(MathTest, LogIsAccurate) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-700, 700), near_one(-1e-3, 1e-3), half(0.5, 2.0);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    for (const double x : {std::exp(exponent(random)), 1 + near_one(random), half(random),
                           1 - (static_cast<double>(random() >> 32) + 0.5) * 0x1p-32}) {
      worst = std::max(worst, UlpError(LogDouble(x), std::log(static_cast<long double>(x))));
    }
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(LogDouble(1.0), 0.0);
  EXPECT_LT(UlpError(LogDouble(1 - 0x1p-33), std::log1p(-0x1p-33L)), 2.0);
}

TEST(MathTest, ExpIsAccurate) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> wide(-707, 708), narrow(-1, 1);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    for (const double x : {wide(random), narrow(random)}) {
      worst = std::max(worst, UlpError(ExpDouble(x), std::exp(static_cast<long double>(x))));
    }
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(ExpDouble(0.0), 1.0);
  EXPECT_EQ(ExpDouble(-709.0), 0.0);
  EXPECT_EQ(ExpDouble(-INFINITY), 0.0);
  EXPECT_EQ(ExpDouble(1e9), ExpDouble(709.0));
}

// -log(E), E = -log1p(-v): the slow twin of the shared loop, with the C library and one token at a time.
float SlowGumbel(uint64_t seed, uint32_t stream, uint32_t position, int64_t token) {
  const PhiloxBlock block = Philox4x32({{position, static_cast<uint32_t>(token / 4), stream, 0}},
                                       static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const double v = (static_cast<double>(block.word[token % 4]) + 0.5) * 0x1p-32;
  return static_cast<float>(-std::log(-std::log1p(-v)));
}

TEST(NoiseTest, FollowsItsDefinition) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{0x123456789abcdef0}}) {
    std::vector<float> row(1027);
    PortableKernels().gumbel_row(seed, 3, 77, 1027, row.data());
    for (int64_t t = 0; t < 1027; ++t) {
      const float expected = SlowGumbel(seed, 3, 77, t);
      ASSERT_NEAR(row[static_cast<size_t>(t)], expected, 2e-7F * std::max(1.0F, std::abs(expected)));
    }
  }
}

TEST(NoiseTest, SameBitsOnEveryTarget) {
  for (const KernelTable* table : AvailableKernels()) {
    SCOPED_TRACE(table->name);
    for (const int64_t vocab : {1, 2, 3, 4, 5, 15, 16, 17, 255, 256, 257, 1000, 32001}) {
      // One more element, to see that nothing is written behind the row.
      std::vector<float> portable(static_cast<size_t>(vocab) + 1, -7), row(static_cast<size_t>(vocab) + 1, -7);
      PortableKernels().gumbel_row(99, 0, 5, vocab, portable.data());
      table->gumbel_row(99, 0, 5, vocab, row.data());
      EXPECT_EQ(std::memcmp(portable.data(), row.data(), row.size() * sizeof(float)), 0) << vocab;
      EXPECT_EQ(row.back(), -7);
    }
  }
}

TEST(NoiseTest, ShorterVocabulariesSeeTheSameNoise) {
  std::vector<float> longer(1000), shorter(301);
  PortableKernels().gumbel_row(4, 0, 9, 1000, longer.data());
  PortableKernels().gumbel_row(4, 0, 9, 301, shorter.data());
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
}

TEST(NoiseTest, ExtremesAreFinite) {
  EXPECT_NEAR(GumbelOfWord(0), 22.8739F, 1e-3F);           // v = 2^-33
  EXPECT_NEAR(GumbelOfWord(0xffffffff), -3.1300F, 1e-3F);  // 1 - v = 2^-33
}

// Mean (Euler's constant), variance (pi^2 / 6) and 32 equally likely cells; positions, seeds and streams all count.
TEST(NoiseTest, HasTheGumbelDistribution) {
  constexpr int64_t kVocab = 10007;
  std::vector<float> row(kVocab);
  double sum = 0, squares = 0, count = 0;
  std::vector<double> cells(32, 0);
  for (uint32_t i = 0; i < 100; ++i) {
    PortableKernels().gumbel_row(i % 4 == 1 ? i : 12345, i % 4 == 2 ? i : 0, i, kVocab, row.data());
    for (const float g : row) {
      sum += g;
      squares += static_cast<double>(g) * g;
      ++cells[std::min<size_t>(31, static_cast<size_t>(std::exp(-std::exp(-g)) * 32))];
    }
    count += kVocab;
  }
  const double mean = sum / count, variance = squares / count - mean * mean;
  EXPECT_NEAR(mean, 0.5772157, 5e-3);      // standard error 1.3e-3
  EXPECT_NEAR(variance, 1.6449341, 1e-2);  // standard error 3e-3
  double chi = 0;
  for (const double observed : cells) chi += (observed - count / 32) * (observed - count / 32) / (count / 32);
  EXPECT_LT(chi, 70.0);  // 31 degrees of freedom: exceeded once in 10^4
}

}  // namespace
}  // namespace hydrant::kernels::noise_test
