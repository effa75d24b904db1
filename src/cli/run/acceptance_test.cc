// SPDX-License-Identifier: Apache-2.0
#include "cli/run/acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hydrant::cli::acceptance_test {
namespace {

using testing::HasSubstr;

GenerationResult Steps(int64_t steps, int64_t nodes, int64_t accepted) {
  GenerationResult result;
  result.num_emitted.assign(static_cast<size_t>(steps), 1);
  result.num_drafted = steps * nodes;
  result.depth_offered = {steps};
  result.depth_accepted = {accepted};
  return result;
}

TEST(AcceptanceTest, FewAcceptedTokensOverFiftyStepsAreWorthAWord) {
  EXPECT_THAT(LowAcceptance(Steps(50, 4, 3)), HasSubstr("1.5 % of 200 drafted tokens were accepted in 50 steps"));
  EXPECT_THAT(LowAcceptance(Steps(200, 63, 0)), HasSubstr("0.0 %"));
  EXPECT_EQ(LowAcceptance(Steps(49, 4, 0)), "");
  EXPECT_EQ(LowAcceptance(Steps(50, 4, 4)), "");
  EXPECT_EQ(LowAcceptance(GenerationResult()), "");
}

// 1.6 %, and three steps give five tokens.
TEST(AcceptanceTest, WideTreesAreNotMeasuredByTheirNodes) { EXPECT_EQ(LowAcceptance(Steps(60, 63, 60)), ""); }

TEST(AcceptanceTest, LookupsAreNoHeads) {
  GenerationResult result = Steps(100, 4, 90);
  result.num_lookup_steps = 40;
  result.num_looked_up = 160;
  result.num_looked_up_accepted = 90;
  EXPECT_THAT(LowAcceptance(result), HasSubstr("0.0 % of 240 drafted tokens were accepted in 60 steps"));
  result.num_lookup_steps = 90;
  result.num_looked_up = 360;
  EXPECT_EQ(LowAcceptance(result), "");  // ten steps
}

// A tree that is chosen while text is generated is given up after eight steps, and probed now and then.
TEST(AcceptanceTest, HeadsThatWereGivenUpAreNamedToo) {
  GenerationResult result = Steps(14, 2, 0);
  EXPECT_EQ(LowAcceptance(result), "");
  result.num_emitted.assign(250, 1);
  EXPECT_THAT(LowAcceptance(result), HasSubstr("0.0 % of 28 drafted tokens were accepted in 14 steps"));
}

}  // namespace
}  // namespace hydrant::cli::acceptance_test
