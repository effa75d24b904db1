// SPDX-License-Identifier: Apache-2.0
#include "sampling/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace hydrant::sampling::logprobs_test {
namespace {

TEST(LogprobsTest, AreTheLogarithmOfTheSoftmax) {
  const std::vector<float> logits = {1, 3, 2, 3, -1};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const TokenLogprobs found = LogprobsOf(logits, 2, 3);
  EXPECT_FLOAT_EQ(found.chosen, static_cast<float>(2 - std::log(sum)));
  ASSERT_EQ(found.top.size(), 3U);
  EXPECT_EQ(found.top[0].token_id, 1);
  EXPECT_EQ(found.top[1].token_id, 3) << "equal ones by id";
  EXPECT_EQ(found.top[2].token_id, 2);
  EXPECT_FLOAT_EQ(found.top[0].value, static_cast<float>(3 - std::log(sum)));
  EXPECT_TRUE(LogprobsOf(logits, 0, 0).top.empty());
  EXPECT_EQ(LogprobsOf(logits, 0, 99).top.size(), 5U);
}

TEST(LogprobsTest, HugeLogitsAndNanStayFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TokenLogprobs found = LogprobsOf(std::vector<float>{3e38F, 3e38F, -3e38F, nan}, 0, 2);
  EXPECT_FLOAT_EQ(found.chosen, static_cast<float>(-std::log(2.0)));
  EXPECT_EQ(LogprobsOf(std::vector<float>{0, nan}, 1, 1).chosen, -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace hydrant::sampling::logprobs_test
