// SPDX-License-Identifier: Apache-2.0
#include "parallel/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

namespace hydrant::parallel::cores_test {
namespace {

using testing::ElementsAre;

// Four cores; 8 to 11 are their other threads.
const base::CoreOrder kFour = {.cpus = {2, 3, 4, 5, 8, 9, 10, 11}, .num_cores = 4};

TEST(Cores, RanksTakeCoresOfTheirOwn) {
  EXPECT_THAT(CoresOf(0, 2, 2, kFour), ElementsAre(2, 3));
  EXPECT_THAT(CoresOf(1, 2, 2, kFour), ElementsAre(4, 5));
  EXPECT_THAT(CoresOf(2, 3, 1, kFour), ElementsAre(4));
  EXPECT_THAT(CoresOf(1, 2, 1, kFour), ElementsAre(3));
}

TEST(Cores, TooFewAreSharedInTurn) {
  EXPECT_THAT(CoresOf(5, 6, 1, kFour), ElementsAre(3));
  EXPECT_THAT(CoresOf(1, 2, 3, kFour), ElementsAre(5, 2, 3));
  EXPECT_THAT(CoresOf(1, 2, 9, kFour), testing::SizeIs(4));
}

TEST(Cores, WhoSharesWithNobodyKeepsAll) { EXPECT_EQ(CoresOf(0, 1, 1, kFour), kFour.cpus); }

TEST(Cores, RanksOfAMachineDivideItsCores) {
  const int all = base::DefaultThreads();
  std::mutex mutex;
  std::multiset<int> taken;
  RunThreads(2, {}, [&](Communicator& ranks) {
    TakeOwnCores(ranks, 0);
    EXPECT_EQ(base::DefaultThreads(), std::max(1, all / 2));
    const std::lock_guard lock(mutex);
    for (const int cpu : base::AllowedCores().cpus) taken.insert(cpu);
  });
  if (all < 2) GTEST_SKIP() << "skipped: one core";
  EXPECT_EQ(std::set<int>(taken.begin(), taken.end()).size(), taken.size());
}

}  // namespace
}  // namespace hydrant::parallel::cores_test
