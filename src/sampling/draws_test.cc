// SPDX-License-Identifier: Apache-2.0
#include "sampling/draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sampling/chi_square.h"

namespace hydrant::sampling::draws_test {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

const std::vector<float> kLogits = {0.5F, 2, -1, 1.2F, 0};

NoiseCache Noise(uint64_t seed, NoiseCache::Stream stream) {
  return {&kernels::PortableKernels(), seed, static_cast<int32_t>(kLogits.size()), stream};
}

// All ordered pairs: the first by its probability, the second by its own among the others.
TEST(DrawsTest, TokensAreDrawnWithoutReplacement) {
  const SamplingOptions options = {.temperature = 0.8F};
  std::vector<float> scratch, probs;
  std::vector<int32_t> tokens;
  std::vector<int64_t> counts(25, 0);
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    NoiseCache noise = Noise(seed, NoiseCache::Stream::kDrafts);
    DrawCandidates(kLogits, options, {}, noise, 7, 2, scratch, tokens, probs);
    ++counts[static_cast<size_t>(tokens[0] * 5 + tokens[1])];
  }
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit) / 0.8);
  std::vector<double> pairs(25, 0);
  for (size_t a = 0; a < 5; ++a) {
    const double first = std::exp(static_cast<double>(kLogits[a]) / 0.8) / sum;
    EXPECT_NEAR(static_cast<double>(probs[a]), first, 1e-6);
    for (size_t b = 0; b < 5; ++b) {
      if (a != b) pairs[a * 5 + b] = first * std::exp(static_cast<double>(kLogits[b]) / 0.8) / sum / (1 - first);
    }
  }
  EXPECT_LT(ChiSquareDeviation(counts, pairs), 4);
}

TEST(DrawsTest, FilteredTokensComeLastAndHaveProbabilityZero) {
  std::vector<float> scratch, probs;
  std::vector<int32_t> tokens;
  NoiseCache noise = Noise(1, NoiseCache::Stream::kDrafts);
  DrawCandidates(kLogits, {.temperature = 1, .top_k = 2}, {}, noise, 0, 4, scratch, tokens, probs);
  EXPECT_EQ(tokens.size(), 4U);
  EXPECT_THAT((std::vector<int32_t>{tokens[0], tokens[1]}), UnorderedElementsAre(1, 3));
  EXPECT_EQ(probs[0], 0.0F);
  EXPECT_NEAR(static_cast<double>(probs[1] + probs[3]), 1, 1e-6);
}

TEST(DrawsTest, StreamsAreDifferent) {
  NoiseCache choices = Noise(3, NoiseCache::Stream::kChoices), drafts = Noise(3, NoiseCache::Stream::kDrafts);
  EXPECT_NE(choices.Row(4)[0], drafts.Row(4)[0]);
}

TEST(DrawsTest, UniformsAreUniform) {
  std::vector<int64_t> counts(20, 0);
  std::vector<double> numbers(3), again(2);
  for (int64_t position = 0; position < 4000; ++position) {
    const NoiseCache noise = Noise(9, NoiseCache::Stream::kChoices);
    noise.Uniforms(position, numbers);
    for (const double number : numbers) {
      ASSERT_GT(number, 0);
      ASSERT_LT(number, 1);
      ++counts[static_cast<size_t>(number * 20)];
    }
    noise.Uniforms(position, again);
    EXPECT_THAT(again, ElementsAre(numbers[0], numbers[1]));
  }
  EXPECT_LT(ChiSquareDeviation(counts, std::vector<double>(20, 0.05)), 4);
}

TEST(DrawsTest, WeightsNeedNotSumToOne) {
  std::vector<int64_t> counts(5, 0);
  const std::vector<double> weights = {0, 2, 1, 0, 5};
  for (uint64_t seed = 0; seed < 8000; ++seed) {
    NoiseCache noise = Noise(seed, NoiseCache::Stream::kChoices);
    ++counts[static_cast<size_t>(DrawFrom(weights, noise.Row(2)))];
  }
  EXPECT_LT(ChiSquareDeviation(counts, std::vector<double>{0, 0.25, 0.125, 0, 0.625}), 4);
}

}  // namespace
}  // namespace hydrant::sampling::draws_test
