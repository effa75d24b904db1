// SPDX-License-Identifier: Apache-2.0
#include "traffic/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hydrant::traffic::summary_test {
namespace {

TEST(SummaryTest, PercentilesAreThoseOfNumPy) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Summary summary = Summarized(values);
  EXPECT_EQ(summary.count, 100U);
  EXPECT_DOUBLE_EQ(summary.mean, 50.5);
  EXPECT_DOUBLE_EQ(summary.p50, 50.5);
  EXPECT_DOUBLE_EQ(summary.p95, 95.05);  // numpy.percentile(range(1, 101), 95)
  EXPECT_DOUBLE_EQ(summary.p99, 99.01);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 100);
}

TEST(SummaryTest, OneValueIsAllOfThemAndNoneIsZero) {
  const Summary one = Summarized({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(Summarized({}).count, 0U);
  EXPECT_EQ(Summarized({}).p99, 0);
}

TEST(PoissonGapsTest, TheSeedRepeatsThemAndTheyHaveTheRate) {
  PoissonGaps gaps(4, 1), again(4, 1), other(4, 2);
  EXPECT_NE(PoissonGaps(4, 1).Next(), other.Next());
  constexpr int kMany = 40'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kMany; ++i) {
    const double gap = gaps.Next();
    ASSERT_EQ(gap, again.Next()) << i;
    ASSERT_TRUE(gap >= 0 && std::isfinite(gap));
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / kMany;
  EXPECT_NEAR(mean, 0.25, 0.005);  // four standard errors
  EXPECT_NEAR(std::sqrt(squares / kMany - mean * mean), mean, 0.01) << "exponential: the deviation is the mean";
}

TEST(PoissonGapsTest, TheFirstNumbersAreTheSameOnEveryMachine) {
  PoissonGaps gaps(1, 0);
  EXPECT_DOUBLE_EQ(gaps.Next(), 0.17410742140928287);
  EXPECT_DOUBLE_EQ(gaps.Next(), 4.8466316950690862);
}

}  // namespace
}  // namespace hydrant::traffic::summary_test
