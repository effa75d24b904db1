// SPDX-License-Identifier: Apache-2.0
#include "train/fit/network.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "train/recipe.h"

namespace hydrant::train::network_test {
namespace {

constexpr int64_t kWidth = 4096;

// Two texts in one row, of 4 and of 64 tokens.
BatchTensors TwoTexts() {
  const std::vector<int32_t> tokens(64, 7);
  const std::vector<uint8_t> learned(64, 1);
  const std::vector<SegmentTokens> segments = {{std::span(tokens).first(4), std::span(learned).first(4)},
                                               {tokens, learned}};
  const std::vector<int32_t> rows = {2};
  return MakeBatchTensors(segments, rows, {at::zeros({68, kWidth})});
}

// The least and the largest number are near the bounds, and the variance is that of a uniform distribution.
void CheckUniform(const at::Tensor& noise, double bound) {
  EXPECT_LE(noise.max().item<double>(), bound * 1.000001);
  EXPECT_GT(noise.max().item<double>(), bound * 0.98);
  EXPECT_LT(noise.min().item<double>(), -bound * 0.98);
  EXPECT_NEAR(noise.square().mean().item<double>() / (bound * bound / 3), 1, 0.05);
}

TEST(Network, ShortTextsGetMoreOfEaglesNoise) {
  const BatchTensors batch = TwoTexts();
  at::Generator random = at::detail::createCPUGenerator(5);
  PassOptions options{.text_noise = RecipeNamed("eagle-1").text_noise, .is_training = true, .random = &random};
  const at::Tensor noise = WithNoise(batch.hidden.front(), batch, options);
  CheckUniform(noise.narrow(0, 0, 4), 0.1 * 512 / 4);
  CheckUniform(noise.narrow(0, 4, 64), 0.1 * 512 / 64);
  options.is_training = false;
  EXPECT_TRUE(WithNoise(batch.hidden.front(), batch, options).equal(batch.hidden.front()));
}

TEST(Network, NeftunesNoiseIsThatOfTheRow) {
  const BatchTensors batch = TwoTexts();
  at::Generator random = at::detail::createCPUGenerator(5);
  const PassOptions options{.noise_alpha = 75, .is_training = true, .random = &random};
  CheckUniform(WithNoise(batch.hidden.front(), batch, options), 75 / std::sqrt(68.0 * kWidth));
}

}  // namespace
}  // namespace hydrant::train::network_test
