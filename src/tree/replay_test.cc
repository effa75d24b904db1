// SPDX-License-Identifier: Apache-2.0
#include "tree/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "hydrant/error.h"
#include "tree/parse.h"
#include "tree/random_tree.h"

namespace hydrant::tree::replay_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Topology Tree(const char* shape) { return ParseTree(shape).topology; }

double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// The slow twin: sets of paths.
class PathSet {
 public:
  explicit PathSet(const Topology& tree) {
    for (const auto& path : tree.Paths()) paths_.insert(path);
  }
  // The longest beginning of a row that is a path of the tree.
  int32_t Accepted(std::span<const uint8_t> row) const {
    int32_t accepted = 0;
    for (size_t length = 1; length <= row.size(); ++length) {
      if (paths_.contains({row.begin(), row.begin() + static_cast<std::ptrdiff_t>(length)})) {
        accepted = static_cast<int32_t>(length);
      }
    }
    return accepted;
  }
  bool Begins(const std::vector<int32_t>& path, std::span<const uint8_t> row) const {
    return path.size() <= row.size() && std::equal(path.begin(), path.end(), row.begin());
  }

 private:
  std::set<std::vector<int32_t>> paths_;
};

template <typename Random>
RankTable RandomTable(Random& random, size_t replies) {
  RankTable table{.num_levels = 1 + static_cast<int32_t>(random() % 5), .num_ranks = 6, .replies = {}};
  table.replies.resize(replies);
  for (std::vector<uint8_t>& ranks : table.replies) {
    for (size_t rows = random() % 40; rows > 0; --rows) {
      bool ended = false;
      for (int32_t d = 0; d < table.num_levels; ++d) {
        const auto rank = static_cast<uint8_t>(std::min<size_t>(random() % 8, random() % 8));
        ended = ended || rank >= table.num_ranks;
        ranks.push_back(ended ? kNoRank : rank);
      }
    }
  }
  return table;
}

// One reply whose rows are all there is to know.
RankTable TableOf(int32_t levels, std::vector<std::vector<uint8_t>> replies) {
  return {.num_levels = levels, .num_ranks = 10, .replies = std::move(replies)};
}

TEST(ReplayTest, AStepGoesOnBehindTheBonusOfTheOneBefore) {
  const uint8_t no = kNoRank;
  const RankTable table = TableOf(2, {{0, 1, 9, no, 0, 0, 1, 2, no, no, 0, 1}});
  const Replayed replayed = Replay(table, Tree("[[0],[0,0],[0,1],[1]]"));
  EXPECT_THAT(replayed.replies[0],
              ElementsAre(ReplayedStep{.root = 0, .num_accepted = 2}, ReplayedStep{.root = 3, .num_accepted = 1},
                          ReplayedStep{.root = 5, .num_accepted = 2}));
  EXPECT_EQ(replayed.num_emitted, 8);
  EXPECT_EQ(replayed.num_tokens, 6) << "the last step accepts two tokens behind the end";
  EXPECT_DOUBLE_EQ(replayed.tokens_per_step, 2);
  EXPECT_DOUBLE_EQ(replayed.emitted_per_step(), 8.0 / 3);
}

TEST(ReplayTest, TheRootAloneIsPlainDecoding) {
  const RankTable table = TableOf(1, {{0, 0, 0}, {}, {1}});
  const Replayed replayed = Replay(table, Topology());
  EXPECT_EQ(replayed.num_steps, 4);
  EXPECT_DOUBLE_EQ(replayed.tokens_per_step, 1);
  EXPECT_DOUBLE_EQ(replayed.standard_error, 0);
  EXPECT_TRUE(replayed.replies[1].empty());
}

TEST(ReplayTest, NothingToDecodeIsOneTokenPerStep) {
  const Replayed replayed = Replay(TableOf(1, {{}, {}}), Tree("[[0]]"));
  EXPECT_EQ(replayed.num_steps, 0);
  EXPECT_DOUBLE_EQ(replayed.tokens_per_step, 1);
  EXPECT_DOUBLE_EQ(replayed.emitted_per_step(), 1);
  EXPECT_TRUE(std::isinf(replayed.standard_error));
  EXPECT_THAT(Shares(TableOf(1, {{}}), Tree("[[0]]")), ElementsAre(1, 0));
}

TEST(ReplayTest, RandomTablesGiveWhatSetsOfPathsGive) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const RankTable table = RandomTable(random, 1 + random() % 4);
    EXPECT_EQ(ProblemIn(table), "");
    const Topology tree = RandomTopology(random, 1 + static_cast<int32_t>(random() % 25), table.num_levels, 6);
    const PathSet paths(tree);
    const Replayed replayed = Replay(table, tree);
    int64_t steps = 0, tokens = 0, emitted = 0;
    for (size_t reply = 0; reply < table.replies.size(); ++reply) {
      std::vector<ReplayedStep> expected;
      const int32_t end = table.num_rows(reply);
      for (int32_t t = 0; t < end;) {
        const int32_t accepted = paths.Accepted(table.Row(reply, t));
        expected.push_back({.root = t, .num_accepted = accepted});
        tokens += std::min(1 + accepted, end - t);
        emitted += 1 + accepted;
        t += 1 + accepted;
      }
      steps += static_cast<int64_t>(expected.size());
      EXPECT_EQ(replayed.replies[reply], expected);
    }
    EXPECT_EQ(replayed.num_steps, steps);
    EXPECT_EQ(replayed.num_tokens, tokens);
    EXPECT_EQ(replayed.num_emitted, emitted);
  }
}

TEST(ReplayTest, SharesAreCountedOverAllRows) {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    const RankTable table = RandomTable(random, 3);
    const Topology tree = RandomTopology(random, 1 + static_cast<int32_t>(random() % 25), table.num_levels, 6);
    const PathSet paths(tree);
    const std::vector<double> shares = Shares(table, tree);
    const auto nodes = tree.Paths();
    double rows = 0, uniform = 0;
    std::vector<double> expected(nodes.size() + 1, 0);
    for (size_t reply = 0; reply < table.replies.size(); ++reply) {
      for (int32_t t = 0; t < table.num_rows(reply); ++t) {
        const std::span<const uint8_t> row = table.Row(reply, t);
        rows += 1;
        uniform += 1 + paths.Accepted(row);
        for (size_t n = 0; n < nodes.size(); ++n) expected[n + 1] += paths.Begins(nodes[n], row) ? 1 : 0;
      }
    }
    if (rows == 0) continue;
    for (size_t n = 0; n < nodes.size(); ++n) EXPECT_DOUBLE_EQ(shares[n + 1], expected[n + 1] / rows);
    EXPECT_NEAR(Sum(shares), uniform / rows, 1e-9) << "what a step gives where all rows count alike";
    for (NodeId node = 1; node < tree.num_nodes(); ++node) {
      const auto n = static_cast<size_t>(node);
      EXPECT_LE(shares[n], shares[static_cast<size_t>(tree.parent()[n])]);
    }
  }
}

// Half of a text is easy, half is hard. Steps jump over the easy half, so most of them begin in the hard one.
TEST(ReplayTest, ATextOfTwoStatesGivesLessThanItsSharesSay) {
  std::vector<uint8_t> ranks;
  for (int stretch = 0; stretch < 200; ++stretch) {
    for (int t = 0; t < 50; ++t) ranks.insert(ranks.end(), 4, stretch % 2 == 0 ? uint8_t{0} : kNoRank);
  }
  const RankTable table = TableOf(4, {ranks});
  const Topology chain = Tree("[[0,0,0,0]]");
  EXPECT_NEAR(Sum(Shares(table, chain)), 3.0, 1e-9);
  EXPECT_NEAR(Replay(table, chain).tokens_per_step, 1 / (0.5 / 5 + 0.5 / 1), 0.01) << "5/3";
}

TEST(ReplayTest, TheStandardErrorIsThatOfARatio) {
  // 4 rows in 2 steps, 6 rows in 6 steps, 3 rows in 1 step and a reply without steps.
  const uint8_t no = kNoRank;
  const RankTable table =
      TableOf(2, {{0, no, no, no, 0, no, 0, 0}, std::vector<uint8_t>(12, no), {0, 0, no, no, no, no}, {}});
  const Replayed replayed = Replay(table, Tree("[[0],[0,0]]"));
  ASSERT_EQ(replayed.replies[0].size(), 2U);
  ASSERT_EQ(replayed.replies[1].size(), 6U);
  ASSERT_EQ(replayed.replies[2].size(), 1U);
  const double ratio = 13.0 / 9;
  EXPECT_DOUBLE_EQ(replayed.tokens_per_step, ratio);
  const double squares = std::pow(4 - 2 * ratio, 2) + std::pow(6 - 6 * ratio, 2) + std::pow(3 - 1 * ratio, 2);
  EXPECT_NEAR(replayed.standard_error, std::sqrt(3.0 / 2 * squares) / 9, 1e-12);
}

// 2,000 replies of one kind: the interval of 40 of them covers the truth as often as it should.
TEST(ReplayTest, TheIntervalCoversTheTruth) {
  std::mt19937 random(13);
  const Topology chain = Tree("[[0,0,0]]");
  const auto reply = [&random] {
    const double easy = std::uniform_real_distribution(0.2, 0.9)(random);
    std::vector<uint8_t> ranks;
    for (int t = 0; t < 60; ++t) {
      bool ended = false;
      for (int d = 0; d < 3; ++d) {
        ended = ended || std::uniform_real_distribution(0.0, 1.0)(random) >= easy;
        ranks.push_back(ended ? kNoRank : uint8_t{0});
      }
    }
    return ranks;
  };
  RankTable all = TableOf(3, {});
  for (int i = 0; i < 2000; ++i) all.replies.push_back(reply());
  const double truth = Replay(all, chain).tokens_per_step;
  int covered = 0;
  for (int sample = 0; sample < 50; ++sample) {
    RankTable part = TableOf(3, {});
    for (size_t i = 0; i < 40; ++i) part.replies.push_back(all.replies[static_cast<size_t>(sample) * 40 + i]);
    const Replayed replayed = Replay(part, chain);
    covered += std::abs(replayed.tokens_per_step - truth) < 1.96 * replayed.standard_error ? 1 : 0;
  }
  EXPECT_GE(covered, 43);
  EXPECT_LT(covered, 50) << "an interval that always covers is too wide";
}

template <typename Fn>
std::string ErrorOf(const Fn& fn) {
  try {
    fn();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ReplayTest, ATreeThatTheRecordDoesNotReachIsRefused) {
  RankTable table = TableOf(2, {{0, 0}});
  EXPECT_THAT(ErrorOf([&] { Replay(table, Tree("[[0,0,0]]")); }), HasSubstr("3 levels, and the record has ranks of 2"));
  table.num_ranks = 2;
  EXPECT_THAT(ErrorOf([&] { Shares(table, Tree("[[0],[1],[2]]")); }),
              HasSubstr("3 children, and the record has ranks 0 to 1"));
}

TEST(ReplayTest, TablesThatNoRecordingGivesAreRefused) {
  const uint8_t no = kNoRank;
  EXPECT_EQ(ProblemIn(TableOf(2, {{0, 9, no, no, 3, no}})), "");
  EXPECT_THAT(ProblemIn(TableOf(2, {{}, {0, 1, 2}})), HasSubstr("reply 1 has part of a row"));
  EXPECT_THAT(ProblemIn(TableOf(2, {{0, 1, 10, 1}})), HasSubstr("reply 0 has a rank in row 1"));
  EXPECT_THAT(ProblemIn(TableOf(2, {{no, 1}})), HasSubstr("in row 0"));
  EXPECT_THAT(ProblemIn(TableOf(0, {})), HasSubstr("0 levels, expected 1 to 64"));
  EXPECT_THAT(ProblemIn({.num_levels = 1, .num_ranks = 256, .replies = {}}), HasSubstr("256 ranks, expected 1 to 255"));
}

}  // namespace
}  // namespace hydrant::tree::replay_test
