// SPDX-License-Identifier: Apache-2.0
// Whole runs on several ranks, against the same run alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "parallel/communicator.h"
#include "tests/kept_run.h"
#include "tests/tiny_heads_run.h"
#include "train/fit/train_heads.h"

namespace hydrant::train::train_heads_ranks_test {
namespace {

using test::Distance;
using test::Kept;

int64_t NumLines(const std::string& path) {
  const std::string text = base::ReadTextFile(path);
  return std::count(text.begin(), text.end(), '\n');
}

class TrainingOnRanks : public test::TinyHeadsRun {
 protected:
  // Trains on ranks with equal options, but for what `change` makes of them. Returns their reports.
  static std::vector<TrainHeadsReport> Train(int size, const TrainHeadsOptions& options,
                                             const std::function<void(TrainHeadsOptions&, int rank)>& change = {}) {
    std::vector<TrainHeadsReport> reports(static_cast<size_t>(size));
    parallel::RunThreads(size, {}, [&](parallel::Communicator& ranks) {
      TrainHeadsOptions own = options;
      own.ranks = &ranks;
      if (change) change(own, ranks.rank());
      reports[static_cast<size_t>(ranks.rank())] = TrainHeads(own);
    });
    return reports;
  }
};

// Where the parameters are after a run, beside where one process alone takes them from the same start.
void ExpectSamePlace(const TrainHeadsOptions& start, const TrainHeadsOptions& alone,
                     const TrainHeadsOptions& together) {
  for (const char* name : {"medusa.values", "hydra++.values"}) {
    const std::vector<float> from = Kept(start.out, name), expected = Kept(alone.out, name),
                             found = Kept(together.out, name);
    ASSERT_EQ(found.size(), expected.size());
    const double way = Distance(from, expected);
    EXPECT_GT(way, 0.01) << name;
    EXPECT_LT(Distance(found, expected), 1e-5 * way) << name;
  }
}

// A gradient is a sum of some 1,000 terms in f32, whose order changes: relative to the terms it is off by some
// sqrt(1000) * 2^-24 = 2e-6, less where the terms of one label stay together. With Recipe::epsilon as above the steps
// are no further off than the gradients, so 1e-5 of the way that the parameters have gone is enough (found: 7e-7).
TEST_F(TrainingOnRanks, EqualsOneProcess) {
  TrainHeadsOptions start = Options("start");
  for (HeadsToTrain& heads : start.heads) heads.recipe.peak_rate = 0;
  TrainHeads(start);
  const TrainHeadsOptions alone = Options("alone");
  const TrainHeadsReport report = TrainHeads(alone);
  EXPECT_EQ(report.steps, 5);
  for (const int size : {2, 3}) {
    const TrainHeadsOptions together = Options("together" + std::to_string(size));
    for (const TrainHeadsReport& of_rank : Train(size, together)) {
      EXPECT_EQ(of_rank.tokens, report.tokens);
      for (size_t f = 0; f < 2; ++f) EXPECT_NEAR(of_rank.heads[f].loss, report.heads[f].loss, 1e-4);
    }
    ExpectSamePlace(start, alone, together);
    EXPECT_EQ(base::ReadTextFile(together.out + "/medusa/config.json"),
              base::ReadTextFile(alone.out + "/medusa/config.json"));
    EXPECT_EQ(NumLines(together.out + "/training/metrics.jsonl"), NumLines(alone.out + "/training/metrics.jsonl"));
  }
}

TEST_F(TrainingOnRanks, ARankWithoutRowsTakesPart) {
  TrainHeadsOptions start = Options("start"), alone = Options("alone"), together = Options("together");
  for (TrainHeadsOptions* options : {&start, &alone, &together}) {
    options->rows = 2;
    options->tokens = 500;
  }
  for (HeadsToTrain& heads : start.heads) heads.recipe.peak_rate = 0;
  TrainHeads(start);
  TrainHeads(alone);
  Train(3, together);
  ExpectSamePlace(start, alone, together);
}

TEST_F(TrainingOnRanks, AllStopAtOneStepAndGoOnBitForBit) {
  TrainHeadsOptions whole = Options("whole"), parts = Options("parts");
  for (TrainHeadsOptions* options : {&whole, &parts}) {
    for (HeadsToTrain& heads : options->heads) heads.recipe.dropout = 0.3;
  }
  for (const TrainHeadsReport& report : Train(2, whole)) EXPECT_FALSE(report.stopped);
  // Rank 1 alone is told to stop.
  std::atomic<bool> stop = false;
  const auto reports = Train(2, parts, [&](TrainHeadsOptions& own, int rank) {
    if (rank == 1) own.stop = &stop;
    own.on_progress = [&stop](const TrainProgress& now) { stop = stop || now.step == 3; };
  });
  for (const TrainHeadsReport& report : reports) {
    EXPECT_TRUE(report.stopped);
    EXPECT_EQ(report.steps, reports.front().steps);
    EXPECT_THAT(report.steps, testing::AllOf(testing::Ge(3), testing::Lt(5)));
  }
  parts.resume = true;
  for (const TrainHeadsReport& report : Train(2, parts)) EXPECT_EQ(report.steps, 5);
  for (const char* name : {"medusa.values", "hydra++.values", "hydra++.variance"}) {
    EXPECT_EQ(Kept(parts.out, name), Kept(whole.out, name)) << name;
  }
}

TEST_F(TrainingOnRanks, OtherSettingsAreRefusedByName) {
  const auto change = [](TrainHeadsOptions& own, int rank) {
    if (rank == 1) own.seed = 2;
  };
  try {
    Train(2, Options("out"), change);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "rank 1 has 'seed' 2, and rank 0 has 1");
  }
}

TEST_F(TrainingOnRanks, ShareHiddenStatesOnTheDisk) {
  TrainHeadsOptions options = Options("out");
  options.cache_most = ~uint64_t{0};
  for (HeadsToTrain& heads : options.heads) heads.recipe.epochs = 2;
  std::string noted;
  const auto note = [&](TrainHeadsOptions& own, int) { own.note = [&](const std::string& text) { noted += text; }; };
  Train(2, options, note);
  EXPECT_THAT(noted, testing::HasSubstr("the base will take about 0 s"));
  options.replace = true;
  noted.clear();
  Train(2, options, note);
  // All texts: those that rank 0 has computed and those of rank 1.
  ASSERT_THAT(noted, AllOf(testing::HasSubstr("those of "), testing::Not(testing::HasSubstr("the base will"))));
  const std::string tail = noted.substr(noted.find("those of ") + 9);
  EXPECT_EQ(std::stoi(tail), std::stoi(tail.substr(tail.find("of ") + 3))) << noted;
}

}  // namespace
}  // namespace hydrant::train::train_heads_ranks_test
