// SPDX-License-Identifier: Apache-2.0
#include "tree/yields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/json.h"
#include "hydrant/error.h"
#include "tree/chooser.h"

namespace hydrant::tree::yields_test {
namespace {

using testing::HasSubstr;

constexpr Limits kLimits{.num_heads = 8, .vocab_size = 1000, .max_nodes = 512};

// A world in which the r-th best node of a tree is right with a known chance, whatever the depth.
double Chance(size_t rank) { return 0.7 * std::pow(0.75, static_cast<double>(rank)); }

std::vector<GrownNode> Grow(const DynamicTreeOptions& size, std::mt19937& random) {
  std::vector<GrownNode> nodes;
  for (int32_t n = 0; n < size.nodes; ++n) {
    const bool accepted = std::uniform_real_distribution(0.0, 1.0)(random) < Chance(static_cast<size_t>(n));
    nodes.push_back({.depth = 1 + n % size.depth, .accepted = accepted});
  }
  return nodes;
}

TEST(GrownYieldsTest, ChancesBecomeWhatWasSeen) {
  GrownYields yields;
  const DynamicTreeOptions size = {.nodes = 6, .depth = 3, .width = 6};
  yields.Add({.nodes = 0});
  yields.Add(size);
  yields.Add({.nodes = 3, .depth = 3, .width = 3});
  std::mt19937 random(3);
  for (int step = 0; step < 3000; ++step) yields.Take({}, Grow(size, random), size);
  double three = 1, six = 1;
  for (size_t rank = 0; rank < 6; ++rank) (rank < 3 ? three : six) += Chance(rank);
  EXPECT_EQ(yields.Tokens()[0], 1);
  EXPECT_NEAR(yields.Tokens()[1], three + six - 1, 0.06);
  EXPECT_NEAR(yields.Tokens()[2], three, 0.05) << "the larger tree's best three";
}

// A node of two levels says nothing of trees of one level, and those of one level keep their order.
TEST(GrownYieldsTest, ATreeTeachesForShallowerOnes) {
  GrownYields yields;
  const DynamicTreeOptions size = {.nodes = 3, .depth = 2, .width = 3};
  yields.Add({.nodes = 2, .depth = 1, .width = 2});
  yields.Add(size);
  const GrownNode nodes[] = {
      {.depth = 1, .accepted = false}, {.depth = 2, .accepted = false}, {.depth = 1, .accepted = true}};
  for (int step = 0; step < 2000; ++step) yields.Take({}, nodes, size);
  EXPECT_NEAR(yields.Tokens()[0], 2, 0.02) << "its second best node is always right";
  EXPECT_NEAR(yields.Tokens()[1], 2, 0.02);
}

TEST(GrownYieldsTest, NodesThatAreNotGivenCountAsWrong) {
  GrownYields yields;
  const DynamicTreeOptions size = {.nodes = 4, .depth = 2, .width = 4};
  yields.Add(size);
  const GrownNode nodes[] = {{.depth = 1, .accepted = true}};
  for (int step = 0; step < 2000; ++step) yields.Take({}, nodes, size);
  EXPECT_NEAR(yields.Tokens()[0], 2, 0.02);
}

TEST(GrownYieldsTest, WhatWasLearnedIsTheSameAgain) {
  const std::vector<FamilyTree> family = GrownFamily(kLimits);
  GrownYields first, second;
  for (const FamilyTree& tree : family) {
    first.Add(tree.grown);
    second.Add(tree.grown);
  }
  std::mt19937 random(4);
  for (int step = 0; step < 50; ++step) first.Take({}, Grow(family.back().grown, random), family.back().grown);
  const base::Json learned = first.Learned();
  second.Learn(base::JsonView(learned, "file"));
  for (size_t tree = 0; tree < family.size(); ++tree) EXPECT_NEAR(first.Tokens()[tree], second.Tokens()[tree], 0.02);
  base::Json wrong = learned;
  wrong[0]["accepted"] = 1e9;
  EXPECT_THAT([&] { second.Learn(base::JsonView(wrong, "file")); },
              testing::ThrowsMessage<FileError>(HasSubstr("accepted")));
}

// A drafter that knows its own chances: the candidates of every node are right with these.
class CalibratedWorld {
 public:
  explicit CalibratedWorld(std::vector<double> chances) : chances_(std::move(chances)) {}

  // The best paths of at most so many levels, best first: candidates' ranks.
  std::vector<std::vector<size_t>> Tree(const DynamicTreeOptions& size) const {
    std::vector<std::vector<size_t>> open, chosen;
    for (size_t rank = 0; rank < chances_.size(); ++rank) open.push_back({rank});
    while (!open.empty() && static_cast<int32_t>(chosen.size()) < size.nodes) {
      const auto best =
          std::ranges::max_element(open, {}, [this](const std::vector<size_t>& path) { return ChanceOf(path); });
      chosen.push_back(*best);
      open.erase(best);
      for (size_t rank = 0; static_cast<int32_t>(chosen.back().size()) < size.depth && rank < chances_.size(); ++rank) {
        open.push_back(chosen.back());
        open.back().push_back(rank);
      }
    }
    return chosen;
  }
  double ChanceOf(const std::vector<size_t>& path) const {
    double chance = 1;
    for (const size_t rank : path) chance *= chances_[rank];
    return chance;
  }
  double Tokens(const DynamicTreeOptions& size) const {
    double tokens = 1;
    for (const std::vector<size_t>& path : Tree(size)) tokens += ChanceOf(path);
    return tokens;
  }
  struct Outcome {
    std::vector<GrownNode> nodes;
    std::vector<VisitedNode> walk;
  };
  Outcome Step(const DynamicTreeOptions& size, std::mt19937& random) const {
    std::vector<size_t> right;  // the ranks that the base chooses; a rank behind the last: none of them
    std::discrete_distribution<size_t> choose = [this] {
      std::vector<double> weights = chances_;
      double left = 1;
      for (const double chance : chances_) left -= chance;
      weights.push_back(left);
      return std::discrete_distribution<size_t>(weights.begin(), weights.end());
    }();
    for (int32_t d = 0; d < size.depth; ++d) right.push_back(choose(random));
    Outcome outcome;
    const std::vector<std::vector<size_t>> tree = Tree(size);
    const auto children = [&tree](const std::vector<size_t>& parent) {
      return static_cast<int32_t>(std::ranges::count_if(tree, [&](const std::vector<size_t>& path) {
        return path.size() == parent.size() + 1 && std::equal(parent.begin(), parent.end(), path.begin());
      }));
    };
    std::vector<size_t> at;
    for (;; at.push_back(right[at.size()])) {
      outcome.walk.push_back({.num_children = children(at)});
      if (at.size() == right.size() || static_cast<int32_t>(right[at.size()]) >= outcome.walk.back().num_children)
        break;
      outcome.walk.back().accepted = static_cast<int32_t>(right[at.size()]);
    }
    for (const std::vector<size_t>& path : tree) {
      outcome.nodes.push_back({.depth = static_cast<int32_t>(path.size()),
                               .accepted = std::equal(path.begin(), path.end(), right.begin())});
    }
    return outcome;
  }

 private:
  std::vector<double> chances_;
};

// The chooser comes to a size whose speed is near the best one's, with good and with poor drafts, where rows are cheap
// and where they are dear.
TEST(GrownYieldsTest, TheChooserFindsAGoodSize) {
  const std::vector<FamilyTree> family = GrownFamily(kLimits);
  struct Case {
    std::vector<double> chances;
    double row, level;  // in plain steps
  };
  const Case cases[] = {{{.65, .12, .05, .03, .02}, .1, .05},
                        {{.65, .12, .05, .03, .02}, .005, .02},
                        {{.8, .1, .03}, .02, .1},
                        {{.35, .1, .05, .03}, .02, .2},
                        {{.5, .2, .1, .05, .03}, .002, .2}};
  for (const auto& [chances, row, level] : cases) {
    const CalibratedWorld world(chances);
    const auto cost = [&](const FamilyTree& tree) {
      return 10 * (1 + row * tree.num_drafted() + level * tree.depth());
    };
    const auto rate = [&](const FamilyTree& tree) { return world.Tokens(tree.grown) / cost(tree); };
    double best = 0;
    for (const FamilyTree& tree : family) best = std::max(best, rate(tree));
    std::mt19937 random(8);
    TreeChooser chooser(family);
    double tokens = 0, time = 0;
    for (int step = 0; step < 600; ++step) {
      const FamilyTree& tree = family[static_cast<size_t>(chooser.Next())];
      const CalibratedWorld::Outcome outcome = world.Step(tree.grown, random);
      const std::vector<std::vector<GrownNode>> grown(1, outcome.nodes);
      const std::vector<std::vector<VisitedNode>> walks(1, outcome.walk);
      const double noise = std::exp(std::normal_distribution(0.0, 0.05)(random));
      tokens += static_cast<double>(outcome.walk.size());
      time += cost(tree) * noise;
      chooser.Observe({.milliseconds = cost(tree) * noise, .walks = walks, .grown = grown});
    }
    const FamilyTree& found = family[static_cast<size_t>(chooser.Best())];
    EXPECT_GT(rate(found), 0.93 * best) << found.name;
    EXPECT_GT(tokens / time, 0.88 * best) << found.name;
    TreeChooser again(family);
    const base::Json learned = chooser.Learned();
    again.Learn(base::JsonView(learned, "file"));
    EXPECT_GT(rate(family[static_cast<size_t>(again.Best())]), 0.9 * best) << "what was learned weighs less";
  }
}

TEST(GrownFamilyTest, FitsTheLimits) {
  for (const FamilyTree& tree : GrownFamily({.num_heads = 3, .vocab_size = 100, .max_nodes = 12})) {
    EXPECT_LE(tree.depth(), 3);
    EXPECT_LT(tree.num_drafted(), 12);
  }
  EXPECT_EQ(GrownFamily(kLimits).front().num_drafted(), 0);
  EXPECT_EQ(GrownFamily(kLimits).back().num_drafted(), 63);
}

}  // namespace
}  // namespace hydrant::tree::yields_test
