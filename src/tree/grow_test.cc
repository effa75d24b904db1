// SPDX-License-Identifier: Apache-2.0
#include "tree/grow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

namespace hydrant::tree::grow_test {
namespace {

using testing::ElementsAre;
using Path = std::vector<int32_t>;
using Paths = std::vector<Path>;

// The slow twin of GrowTree: sets of paths, and every row's every beginning looked up.
Paths GrowBySets(const RankTable& table, const GrowOptions& options) {
  std::set<Path> tree;
  Paths order;
  const auto next_of = [&](std::span<const uint8_t> row, size_t& accepted) {
    Path path;
    accepted = 0;
    for (const uint8_t rank : row) {
      path.push_back(rank);
      if (!tree.contains(path)) return rank == kNoRank ? Path() : path;
      ++accepted;
    }
    return Path();
  };
  const auto may_have = [&](Path path) {
    if (path.empty() || static_cast<int32_t>(path.size()) > options.max_depth) return false;
    return path.back()-- == 0 || tree.contains(path);
  };
  while (static_cast<int32_t>(order.size()) < options.max_nodes) {
    std::map<Path, std::pair<int64_t, int64_t>> counts;  // visited, all
    for (size_t reply = 0; reply < table.replies.size(); ++reply) {
      for (int32_t t = 0, root = 0; t < table.num_rows(reply); ++t) {
        size_t accepted = 0;
        const Path next = next_of(table.Row(reply, t), accepted);
        if (may_have(next)) {
          ++counts[next].second;
          if (t == root) ++counts[next].first;
        }
        if (t == root) root += static_cast<int32_t>(accepted) + 1;
      }
    }
    if (counts.empty()) break;
    const bool all = options.rows == CountedRows::kAll;
    const auto best = std::ranges::min_element(counts, {}, [all](const auto& entry) {
      const auto& [visited, every] = entry.second;
      return std::tuple(all ? -every : -visited, -every, entry.first.size(), entry.first);
    });
    tree.insert(best->first);
    order.push_back(best->first);
  }
  return order;
}

RankTable RandomTable(std::mt19937& random) {
  RankTable table{.num_levels = 1 + static_cast<int32_t>(random() % 4), .num_ranks = 5, .replies = {}};
  table.replies.resize(1 + random() % 5);
  for (std::vector<uint8_t>& ranks : table.replies) {
    for (size_t rows = random() % 60; rows > 0; --rows) {
      bool ended = false;
      for (int32_t d = 0; d < table.num_levels; ++d) {
        const auto rank = static_cast<uint8_t>(std::min(random() % 7, random() % 7));
        ended = ended || rank >= table.num_ranks;
        ranks.push_back(ended ? kNoRank : rank);
      }
    }
  }
  return table;
}

TEST(GrowTest, EqualsItsTwinByCountedRowsAndDepth) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const RankTable table = RandomTable(random);
    const GrowOptions options{.max_nodes = static_cast<int32_t>(random() % 30),
                              .max_depth = 1 + static_cast<int32_t>(random() % 5),
                              .rows = round % 2 == 0 ? CountedRows::kVisited : CountedRows::kAll};
    EXPECT_EQ(GrowTree(table, options), GrowBySets(table, options)) << round;
  }
}

TEST(GrowTest, EveryBeginningIsATreeWithinTheLimits) {
  std::mt19937 random(4);
  for (int round = 0; round < 30; ++round) {
    const RankTable table = RandomTable(random);
    const Paths paths = GrowTree(table, {.max_nodes = 20, .max_depth = 3});
    EXPECT_LE(paths.size(), 20U);
    for (size_t count = 0; count <= paths.size(); ++count) {
      const Topology tree = FirstNodes(paths, count);
      EXPECT_EQ(tree.num_nodes(), static_cast<int32_t>(count) + 1);
      EXPECT_LE(tree.max_depth(), 3);
    }
  }
}

// Rows whose shares never grow from a node to its next sibling, nor, as always, to its child. Appends those below
// `path`.
void AddRows(std::mt19937& random, int64_t count, Path path, size_t levels, std::vector<Path>& rows) {
  if (path.size() < levels) {
    int64_t left = count, most = count;
    for (int32_t rank = 0; rank < 3 && left > 0; ++rank) {
      const int64_t share = std::min<int64_t>(most, static_cast<int64_t>(random() % static_cast<uint32_t>(left + 1)));
      path.push_back(rank);
      AddRows(random, share, path, levels, rows);
      path.pop_back();
      left -= share;
      most = share;
    }
    count = left;
  }
  path.resize(levels, kNoRank);
  rows.insert(rows.end(), static_cast<size_t>(count), path);
}

// Every tree of at most three levels and three children with `count` drafted nodes.
std::set<std::set<Path>> TreesOf(size_t count) {
  std::set<std::set<Path>> trees = {{}};
  for (size_t i = 0; i < count; ++i) {
    std::set<std::set<Path>> larger;
    for (const std::set<Path>& tree : trees) {
      std::vector<Path> parents(tree.begin(), tree.end());
      parents.emplace_back();
      for (Path path : parents) {
        if (path.size() == 3) continue;
        path.push_back(0);
        while (tree.contains(path)) ++path.back();
        if (path.back() == 3) continue;
        std::set<Path> grown = tree;
        grown.insert(path);
        larger.insert(std::move(grown));
      }
    }
    trees = std::move(larger);
  }
  return trees;
}

double TokensPerStep(const RankTable& table, const Paths& paths) {
  return Replay(table, FirstNodes(paths, paths.size())).tokens_per_step;
}

double SumOfShares(const RankTable& table, const Paths& paths) {
  double sum = 0;
  for (const double share : Shares(table, FirstNodes(paths, paths.size()))) sum += share;
  return sum;
}

TEST(GrowTest, ByAllRowsItHasTheLargestSumOfSharesOfAllTreesOfEachSize) {
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    std::vector<Path> rows;
    AddRows(random, 200, {}, 3, rows);
    RankTable table{.num_levels = 3, .num_ranks = 3, .replies = {{}}};
    for (const Path& row : rows) table.replies[0].insert(table.replies[0].end(), row.begin(), row.end());
    const Paths paths = GrowTree(table, {.max_nodes = 5, .max_depth = 3, .rows = CountedRows::kAll});
    for (size_t count = 1; count <= paths.size(); ++count) {
      double best = 0;
      for (const std::set<Path>& tree : TreesOf(count))
        best = std::max(best, SumOfShares(table, {tree.begin(), tree.end()}));
      EXPECT_NEAR(SumOfShares(table, {paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(count)}), best, 1e-12);
    }
  }
}

// A text of easy and hard stretches: in easy ones every level is rank 0; in hard ones the first is 0, 1 or 2.
RankTable EasyAndHard(std::mt19937& random, size_t stretches) {
  RankTable table{.num_levels = 4, .num_ranks = 3, .replies = {{}}};
  for (size_t s = 0; s < stretches; ++s) {
    const bool easy = random() % 2 == 0;
    for (int row = 0; row < 10; ++row) {
      Path ranks(4, kNoRank);
      if (easy) ranks.assign(4, 0);
      if (!easy) ranks[0] = static_cast<int32_t>(random() % 4 == 3 ? kNoRank : random() % 3);
      table.replies[0].insert(table.replies[0].end(), ranks.begin(), ranks.end());
    }
  }
  return table;
}

TEST(GrowTest, ByVisitedRowsItComesNearTheBestOfAllTreesOfFourNodes) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const RankTable table = EasyAndHard(random, 60);
    double best = 0;
    for (const std::set<Path>& tree : TreesOf(4))
      best = std::max(best, TokensPerStep(table, {tree.begin(), tree.end()}));
    EXPECT_GE(TokensPerStep(table, GrowTree(table, {.max_nodes = 4, .max_depth = 3})), 0.95 * best) << seed;
  }
}

// Decoding jumps over the easy stretches, so its steps begin in the hard ones, where a second candidate helps and the
// chain's end does not.
TEST(GrowTest, VisitedRowsAskForOtherNodesThanAllRows) {
  std::mt19937 random(7);
  const RankTable table = EasyAndHard(random, 200);
  const Paths visited = GrowTree(table, {.max_nodes = 6}),
              all = GrowTree(table, {.max_nodes = 6, .rows = CountedRows::kAll});
  EXPECT_THAT(all, ElementsAre(Path{0}, Path{0, 0}, Path{0, 0, 0}, Path{0, 0, 0, 0}, Path{1}, Path{2}));
  EXPECT_LT(std::ranges::find(visited, Path{1}), std::ranges::find(visited, Path{0, 0, 0, 0}));
  EXPECT_GT(SumOfShares(table, all), 1.1 * TokensPerStep(table, all))
      << "what all rows promise, decoding does not keep";
}

// Levels of which each is what it is whatever the others are: every combination, as often as its product says.
TEST(GrowTest, IndependentLevelsGrowAsProductsSay) {
  const std::vector<std::vector<size_t>> counts = {
      {11, 5, 2, 1}, {7, 3, 2}, {5, 3, 1}};  // of ranks 0, 1, ..., and the last of none
  RankTable table{.num_levels = 3, .num_ranks = 4, .replies = {{}}};
  const auto rank_of = [&](size_t level, size_t i) {
    size_t rank = 0;
    for (; i >= counts[level][rank]; ++rank) i -= counts[level][rank];
    return rank + 1 == counts[level].size() ? kNoRank : static_cast<uint8_t>(rank);
  };
  for (size_t i = 0; i < 19 * 12 * 9; ++i) {
    std::vector<uint8_t> row = {rank_of(0, i % 19), rank_of(1, i / 19 % 12), rank_of(2, i / 19 / 12)};
    std::fill(std::ranges::find(row, kNoRank), row.end(), kNoRank);
    table.replies[0].insert(table.replies[0].end(), row.begin(), row.end());
  }
  const Paths independent = GrowIndependentTree(table, {.max_nodes = 15});
  EXPECT_EQ(independent, GrowTree(table, {.max_nodes = 15, .rows = CountedRows::kAll}));
  EXPECT_EQ(independent.size(), 15U);
}

TEST(GrowTest, WhatIsNeverReachedIsNotDrafted) {
  const RankTable nothing{.num_levels = 2, .num_ranks = 3, .replies = {{kNoRank, kNoRank}, {}}};
  EXPECT_TRUE(GrowTree(nothing, {}).empty());
  EXPECT_TRUE(GrowIndependentTree(nothing, {}).empty());
  const RankTable one{.num_levels = 2, .num_ranks = 3, .replies = {{0, 2}}};
  EXPECT_THAT(GrowTree(one, {}), ElementsAre(Path{0})) << "no rank 1 was seen, and rank 2 must not stand without it";
}

}  // namespace
}  // namespace hydrant::tree::grow_test
