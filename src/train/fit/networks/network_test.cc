// SPDX-License-Identifier: Apache-2.0
#include "train/fit/networks/network.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
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

TEST(Network, DropoutKeepsItsShareOnAnyNumberOfThreads) {
  const at::Tensor ones = at::ones({301, 333});  // an odd number of numbers, for several threads
  const auto drop = [&](uint64_t seed) {
    at::Generator random = at::detail::createCPUGenerator(seed);
    return Dropped(ones, {.dropout = 0.2, .is_training = true, .random = &random});
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = drop(3);
  at::set_num_threads(3);
  EXPECT_TRUE(alone.equal(drop(3)));
  EXPECT_FALSE(alone.equal(drop(4)));
  at::set_num_threads(threads);
  // Five standard deviations of the share of 100,233 numbers; of every second one, more.
  EXPECT_NEAR(alone.mean().item<double>(), 1, 5 * std::sqrt(0.25 / 100233));
  EXPECT_NEAR(alone.view(-1).slice(0, 1, 100233, 2).mean().item<double>(), 1, 5 * std::sqrt(0.25 / 50116));
  EXPECT_TRUE(at::logical_or(alone.eq(0), alone.eq(1.25)).all().item<bool>());
  EXPECT_NEAR((alone.narrow(1, 0, 332) * alone.narrow(1, 1, 332)).mean().item<double>(), 1, 0.02) << "neighbours";
  at::Generator random = at::detail::createCPUGenerator(3);
  EXPECT_TRUE(Dropped(ones, {.dropout = 0.2, .random = &random}).equal(ones)) << "outside training";
}

}  // namespace
}  // namespace hydrant::train::network_test
