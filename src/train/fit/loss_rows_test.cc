// SPDX-License-Identifier: Apache-2.0
#include "train/fit/loss_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/tensor.h"
#include "train/data/random.h"

namespace hydrant::train::loss_rows_test {
namespace {

std::vector<float> Draws(int64_t count, double scale, uint64_t seed) {
  Random random(seed);
  std::vector<float> draws;
  for (int64_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(random.Next() >> 11) * 0x1p-53;
    draws.push_back(static_cast<float>(scale * (2 * share - 1)));
  }
  return draws;
}

std::vector<double> SoftmaxOf(const std::vector<float>& logits, const std::vector<float>& bias) {
  std::vector<double> shares;
  for (size_t i = 0; i < logits.size(); ++i) {
    shares.push_back(static_cast<double>(logits[i]) + (bias.empty() ? 0.0 : static_cast<double>(bias[i])));
  }
  const double most = *std::ranges::max_element(shares);
  for (double& x : shares) x = std::exp(x - most);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& x : shares) x /= sum;
  return shares;
}

struct Case {
  int64_t width;
  double scale;
  bool has_bias, has_teacher;
  int64_t label;
};

// The same in double, one number after the other.
void Check(const Case& c) {
  SCOPED_TRACE(testing::Message() << "width " << c.width << ", scale " << c.scale << ", bias " << c.has_bias
                                  << ", teacher " << c.has_teacher << ", label " << c.label);
  std::vector<float> logits = Draws(c.width, c.scale, 1), bias, teacher, scratch(static_cast<size_t>(c.width));
  for (float& x : logits) x = BFloat16ToFloat(FloatToBFloat16(x));
  if (c.has_bias) bias = Draws(c.width, 1, 2);
  if (c.has_teacher) {
    for (const double share : SoftmaxOf(Draws(c.width, 3, 3), {})) teacher.push_back(static_cast<float>(share));
  }
  const std::vector<double> shares = SoftmaxOf(logits, bias);
  const double label_weight = 0.25, teacher_weight = 0.5, scale = 0.3;
  const double total = (c.label >= 0 ? label_weight : 0) + (c.has_teacher ? teacher_weight : 0);
  const RowTarget target{.label = c.label,
                         .teacher = c.has_teacher ? teacher.data() : nullptr,
                         .label_weight = label_weight,
                         .teacher_weight = teacher_weight,
                         .scale = scale};
  std::vector<uint16_t> narrow;
  for (const float x : logits) narrow.push_back(FloatToBFloat16(x));
  const float* biases = c.has_bias ? bias.data() : nullptr;
  std::vector<float> kept = logits;
  LossOfRow(std::span(kept), biases, target, false, scratch.data());
  EXPECT_EQ(kept, logits) << "without a gradient";
  const RowLoss loss = LossOfRow(std::span(logits), biases, target, true, scratch.data());
  const RowLoss narrow_loss = LossOfRow(std::span(narrow), biases, target, true, scratch.data());
  EXPECT_EQ(loss.label, narrow_loss.label);
  EXPECT_EQ(loss.teacher, narrow_loss.teacher);
  double of_teacher = 0;
  for (int64_t i = 0; i < c.width; ++i) {
    const auto n = static_cast<size_t>(i);
    if (c.has_teacher) of_teacher -= static_cast<double>(teacher[n]) * std::log(shares[n]);
    const double expected = scale * (total * shares[n] - (c.has_teacher ? teacher_weight * teacher[n] : 0) -
                                     (i == c.label ? label_weight : 0));
    EXPECT_NEAR(static_cast<double>(logits[n]), expected, 1e-6 * std::abs(expected) + 1e-7) << i;
    EXPECT_EQ(narrow[n], FloatToBFloat16(logits[n])) << i;
  }
  EXPECT_NEAR(loss.label, c.label >= 0 ? -std::log(shares[static_cast<size_t>(c.label)]) : 0, 2e-6 * (1 + c.scale));
  EXPECT_NEAR(loss.teacher, of_teacher, 2e-6 * (1 + c.scale));
}

TEST(LossRows, EqualsTheLossInDouble) {
  for (const int64_t width : {1, 5, 16, 33, 512, 4099}) {
    for (const double scale : {0.0, 1.0, 8.0}) {
      for (const int flags : {0, 1, 2, 3}) {
        for (const int64_t label : {int64_t{-1}, width - 1}) {
          Check({width, scale, (flags & 1) != 0, (flags & 2) != 0, label});
        }
      }
    }
  }
}

// Far apart: shares of 0 and 1, no infinities.
TEST(LossRows, TakesLogitsThatAreFarApart) {
  std::vector<float> logits = {-1e4F, 3e4F, -100, 0}, scratch(4);
  const RowLoss loss = LossOfRow(std::span(logits), nullptr, {.label = 0}, true, scratch.data());
  EXPECT_NEAR(loss.label, 4e4, 1);
  EXPECT_EQ(logits, (std::vector<float>{-1, 1, 0, 0}));
}

// What is spoilt must not look like a loss.
TEST(LossRows, SpoiltLogitsGiveASpoiltLoss) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(40, 1), scratch(40);
    logits[17] = bad;
    EXPECT_FALSE(std::isfinite(LossOfRow(std::span(logits), nullptr, {.label = 3}, true, scratch.data()).label));
  }
}

}  // namespace
}  // namespace hydrant::train::loss_rows_test
