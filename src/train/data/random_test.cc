// SPDX-License-Identifier: Apache-2.0
#include "train/data/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace hydrant::train::random_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;

// The first numbers of the authors' program for this seed.
TEST(RandomTest, NumbersAreThoseOfSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317U);
  EXPECT_EQ(random.Next(), 3203168211198807973U);
  EXPECT_EQ(random.Next(), 9817491932198370423U);
}

TEST(RandomTest, NumbersBelowALimitAreEquallyLikely) {
  Random random(7);
  std::array<int, 6> counts{};
  for (int i = 0; i < 6000; ++i) ++counts[random.Below(6)];
  EXPECT_THAT(counts, Each(Gt(880)));  // 1000 expected, standard deviation 29
  EXPECT_EQ(random.Below(1), 0U);
}

// Two thirds of 2^64: without drawing again the lower half would be twice as likely.
TEST(RandomTest, NumbersOfTheIncompleteRoundAreDrawnAgain) {
  Random random(7);
  constexpr uint64_t kCount = uint64_t{3} << 62;
  int low = 0;
  for (int i = 0; i < 3000; ++i) low += random.Below(kCount) < kCount / 3 ? 1 : 0;
  EXPECT_NEAR(low, 1000, 130);  // five standard deviations
}

TEST(RandomTest, AShuffleHasEachIndexOnceInAFixedOrder) {
  Random random(1);
  EXPECT_THAT(ShuffledIndices(8, random), ElementsAre(4, 3, 2, 7, 5, 6, 0, 1));
  std::vector<int32_t> order = ShuffledIndices(1000, random);
  std::sort(order.begin(), order.end());
  for (int32_t i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_THAT(ShuffledIndices(0, random), ElementsAre());
}

TEST(RandomTest, EveryOrderIsEquallyLikely) {
  Random random(3);
  int sorted = 0;
  for (int i = 0; i < 6000; ++i) sorted += ShuffledIndices(3, random) == std::vector<int32_t>{0, 1, 2} ? 1 : 0;
  EXPECT_NEAR(sorted, 1000, 150);
}

}  // namespace
}  // namespace hydrant::train::random_test
