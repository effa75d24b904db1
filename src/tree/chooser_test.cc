// SPDX-License-Identifier: Apache-2.0
// The chooser against simulated machines and heads: costs by rows and levels, acceptance by rank, noise.
#include "tree/chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "base/json.h"
#include "hydrant/error.h"
#include "tree/family.h"

namespace hydrant::tree::chooser_test {
namespace {

constexpr Limits kFourHeads{.num_heads = 4, .vocab_size = 1000, .max_nodes = 512};

// What a step takes and what heads get right.
struct World {
  std::function<double(const Topology&)> cost;  // milliseconds
  std::array<double, 10> chance{};              // of the rank-th candidate, where the walk comes to a node; rest: none
  double noise = 0;                             // log-normal, of each step
};

double Flat(const Topology& tree) { return 100 + 0.2 * (tree.num_nodes() - 1) + 5 * tree.max_depth(); }
double Steep(const Topology& tree) { return 1 + 0.16 * (tree.num_nodes() - 1) + 0.15 * tree.max_depth(); }
double Staircase(const Topology& tree) {
  const int32_t stairs = (tree.num_nodes() - 1) / 16;
  return 100 * (1 + 0.35 * stairs) + 5 * tree.max_depth();
}

constexpr std::array<double, 10> kGood = {.65, .12, .05, .03, .02, .01, .01, .01, .01, .01};
constexpr std::array<double, 10> kPoor = {.33, .1, .05, .03, .02, .01, .01, .01, .01, .01};
constexpr std::array<double, 10> kNever = {};

std::vector<VisitedNode> Walk(const Topology& tree, const World& world, std::mt19937& random) {
  std::vector<VisitedNode> walk;
  for (int32_t node = 0;;) {
    const int32_t children = tree.num_children()[static_cast<size_t>(node)];
    walk.push_back({.num_children = children});
    double left = std::uniform_real_distribution(0.0, 1.0)(random);
    int32_t rank = 0;
    while (rank < 10 && left >= world.chance[static_cast<size_t>(rank)])
      left -= world.chance[static_cast<size_t>(rank++)];
    if (rank >= children) return walk;
    walk.back().accepted = rank;
    node = tree.first_child()[static_cast<size_t>(node)] + rank;
  }
}

// Milliseconds of `tokens` tokens; with a fixed tree, or the chooser's where `fixed` is negative.
double Decode(TreeChooser& chooser, std::span<const FamilyTree> family, const World& world, int tokens,
              std::mt19937& random, int32_t fixed = -1) {
  double total = 0;
  std::vector<std::vector<VisitedNode>> walks(1);
  for (int done = 0; done < tokens;) {
    const Topology& tree = family[static_cast<size_t>(fixed < 0 ? chooser.Next() : fixed)].topology;
    walks[0] = Walk(tree, world, random);
    const double ms = world.cost(tree) * std::exp(std::normal_distribution(0.0, 1.0)(random) * world.noise);
    done += static_cast<int>(walks[0].size());
    total += ms;
    if (fixed < 0) chooser.Observe({.milliseconds = ms, .walks = walks});
  }
  return total;
}

struct Speeds {
  double first = 0, second = 0;  // runs of auto over plain: tokens per millisecond, means over many seeds
  double best = 0;               // of the best fixed tree of the family
};

Speeds Measure(const World& world, int tokens = 256) {
  constexpr int kRepeats = 200;
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  double plain = 0, first = 0, second = 0;
  std::mt19937 random(1);
  for (int i = 0; i < kRepeats; ++i) {
    TreeChooser chooser(family), again(family);
    plain += Decode(chooser, family, world, tokens, random, 0);
    first += Decode(chooser, family, world, tokens, random);
    const base::Json learned = chooser.Learned();
    again.Learn(base::JsonView(learned, "learned"));
    second += Decode(again, family, world, tokens, random);
  }
  double best = plain;
  for (int32_t tree = 1; tree < static_cast<int32_t>(family.size()); ++tree) {
    TreeChooser unused(family);
    double time = 0;
    for (int i = 0; i < kRepeats; ++i) time += Decode(unused, family, world, tokens, random, tree);
    best = std::min(best, time);
  }
  return {.first = plain / first, .second = plain / second, .best = plain / best};
}

TEST(TreeChooserTest, HeadsThatNeverHitCostLittle) {
  for (const auto& cost : {Flat, Steep, Staircase}) {
    for (const double noise : {0.0, 0.1}) {
      const Speeds speeds = Measure({.cost = cost, .chance = kNever, .noise = noise});
      EXPECT_GT(speeds.first, 0.97);
      EXPECT_GT(speeds.second, 0.985);
    }
  }
}

// (Means of 200 seeds. Noise of 10 % a step costs 1 to 10 %, most where trees of many sizes are about as good.)
TEST(TreeChooserTest, HeadsThatPayComeNearTheBestTree) {
  for (const auto& chance : {kGood, kPoor}) {
    for (const auto& cost : {Flat, Steep, Staircase}) {
      const Speeds exact = Measure({.cost = cost, .chance = chance, .noise = 0});
      EXPECT_GT(exact.first, 0.94 * exact.best);
      EXPECT_GT(exact.second, 0.96 * exact.best);
      const Speeds noisy = Measure({.cost = cost, .chance = chance, .noise = 0.1});
      EXPECT_GT(noisy.first, 0.87 * noisy.best);
      EXPECT_GT(noisy.second, 0.89 * noisy.best);
      EXPECT_GT(noisy.first, 0.98);
    }
  }
}

// Feeds steps until `count` are done, with nothing accepted; the trees that were asked for.
std::vector<int32_t> LosingSteps(TreeChooser& chooser, std::span<const FamilyTree> family, int count) {
  std::vector<int32_t> asked;
  for (int i = 0; i < count; ++i) {
    asked.push_back(chooser.Next());
    const Topology& tree = family[static_cast<size_t>(chooser.Next())].topology;
    const std::vector<VisitedNode> walk = {{.num_children = tree.num_children()[0]}};
    chooser.Observe({.milliseconds = Flat(tree), .walks = std::span(&walk, 1)});
  }
  return asked;
}

TEST(TreeChooserTest, GivesUpAfterEightLosingStepsAndProbesAfterLongerAndLongerPauses) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  TreeChooser chooser(family);
  const std::vector<int32_t> asked = LosingSteps(chooser, family, 300);
  EXPECT_THAT(std::vector(asked.begin(), asked.begin() + 4), testing::ElementsAre(0, 2, 0, 2));
  std::vector<int> drafting, pauses;  // lengths of stretches, after the opening
  for (size_t i = 3; i < asked.size(); ++i) {
    std::vector<int>& lengths = asked[i] > 0 ? drafting : pauses;
    if ((asked[i] > 0) == (asked[i - 1] > 0)) {
      ++lengths.back();
    } else {
      lengths.push_back(1);
    }
  }
  EXPECT_EQ(1 + drafting.front(), TreeChooser::kMostLosses) << "with the opening's first one";
  EXPECT_THAT(std::vector(drafting.begin() + 1, drafting.end()), testing::Each(2)) << "a probe";
  EXPECT_THAT(pauses, testing::ElementsAre(32, 64, 128, testing::Gt(0)));
}

TEST(TreeChooserTest, DraftsAgainWhenTheTextBecomesEasy) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  TreeChooser chooser(family);
  LosingSteps(chooser, family, 100);
  std::mt19937 random(3);
  const World easy{.cost = Flat, .chance = kGood, .noise = 0};
  Decode(chooser, family, easy, 400, random);
  EXPECT_GT(chooser.Best(), 0);
  EXPECT_GT(chooser.EstimateOf(chooser.Best()).tokens_per_step, 2);
}

TEST(TreeChooserTest, AMachineThatSlowsDownAsAWholeChangesNothing) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  TreeChooser chooser(family);
  std::mt19937 random(5);
  Decode(chooser, family, {.cost = Staircase, .chance = kGood, .noise = 0}, 400, random);
  const int32_t before = chooser.Best();
  const auto slow = [](const Topology& tree) { return 2.5 * Staircase(tree); };
  Decode(chooser, family, {.cost = slow, .chance = kGood, .noise = 0}, 400, random);
  EXPECT_NEAR(chooser.EstimateOf(before).milliseconds, slow(family[static_cast<size_t>(before)].topology), 75);
  EXPECT_GT(chooser.EstimateOf(chooser.Best()).tokens_per_step / chooser.EstimateOf(chooser.Best()).relative_cost, 2.2);
}

// Hundreds of plain steps must not blur what a drafting step takes: the times that plain ones are compared with must be
// as often too long as too short.
TEST(TreeChooserTest, LongPausesKeepTheCostsOfTrees) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    TreeChooser chooser(family);
    std::mt19937 random(seed);
    Decode(chooser, family, {.cost = Flat, .chance = kNever, .noise = 0.05}, 1000, random);
    EXPECT_NEAR(chooser.EstimateOf(2).relative_cost, 1.104, 0.15) << seed;
  }
}

// What plain steps take decides whether drafting is given up: a busy moment at the beginning must not blur it for good.
TEST(TreeChooserTest, ABusyMomentAtTheBeginningIsForgotten) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    TreeChooser chooser(family);
    std::mt19937 random(seed);
    const auto slow = [](const Topology& tree) { return 5 * Steep(tree); };
    Decode(chooser, family, {.cost = slow, .chance = kGood, .noise = 0.05}, 20, random);
    Decode(chooser, family, {.cost = Steep, .chance = kGood, .noise = 0.05}, 300, random);
    const TreeEstimate best = chooser.EstimateOf(chooser.Best());
    const double truth = Steep(family[static_cast<size_t>(best.tree)].topology);
    EXPECT_NEAR(best.relative_cost, truth, 0.3 * truth) << seed;
  }
}

// Whatever a run sees of the machine's speed, the next begins with the same costs: forty runs, each on a machine of
// another speed, some of whose steps are disturbed.
TEST(TreeChooserTest, WhatIsLearnedDoesNotDriftFromRunToRun) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  for (const auto& chance : {kGood, kPoor, kNever}) {
    std::mt19937 random(11);
    base::Json learned = TreeChooser(family).Learned();
    for (int run = 0; run < 40; ++run) {
      TreeChooser chooser(family);
      chooser.Learn(base::JsonView(learned, "learned"));
      const double speed = std::exp(std::normal_distribution(0.0, 0.5)(random));
      const auto cost = [&](const Topology& tree) { return speed * Steep(tree) * (random() % 8 == 0 ? 1.8 : 1); };
      Decode(chooser, family, {.cost = cost, .chance = chance, .noise = 0.05}, 20 + static_cast<int>(random() % 100),
             random);
      learned = chooser.Learned();
      for (const TreeEstimate& estimate : chooser.Estimates()) {  // a tree may have been seen once, disturbed
        const double truth = Steep(family[static_cast<size_t>(estimate.tree)].topology);
        EXPECT_LT(std::abs(std::log(estimate.relative_cost / truth)), std::log(2.2)) << run << " " << estimate.tree;
      }
    }
  }
}

// Runs shorter than a pause carry it on, so that drafting is tried again some day.
TEST(TreeChooserTest, ShortRunsSeeTheEndOfAPause) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  TreeChooser first(family);
  LosingSteps(first, family, 60);
  base::Json learned = first.Learned();
  int drafting = 0;
  for (int run = 0; run < 8; ++run) {
    TreeChooser chooser(family);
    chooser.Learn(base::JsonView(learned, "learned"));
    const std::vector<int32_t> asked = LosingSteps(chooser, family, 20);
    drafting += static_cast<int>(std::ranges::count_if(asked, [](int32_t tree) { return tree > 0; }));
    learned = chooser.Learned();
  }
  EXPECT_GE(drafting, 2);
  EXPECT_LE(drafting, 16);
}

TEST(TreeChooserTest, WithoutHeadsOrWithOddTimesItStillAnswers) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  TreeChooser alone(std::span<const FamilyTree>(family).first(1));
  const std::vector<VisitedNode> walk = {{.num_children = 0}};
  for (int i = 0; i < 10; ++i) alone.Observe({.milliseconds = 1, .walks = std::span(&walk, 1)});
  EXPECT_EQ(alone.Next(), 0);
  TreeChooser chooser(family);
  std::mt19937 random(7);
  for (const double ms : {0.0, 1e300, 1e-300, 5.0, 0.0, 1e12, 3.0, 2.0, 1.0}) {
    const Topology& tree = family[static_cast<size_t>(chooser.Next())].topology;
    const std::vector<VisitedNode> steps = Walk(tree, {.cost = Flat, .chance = kGood, .noise = 0}, random);
    chooser.Observe({.milliseconds = ms, .walks = std::span(&steps, 1)});
    ASSERT_LT(static_cast<size_t>(chooser.Next()), family.size());
    EXPECT_TRUE(std::isfinite(chooser.EstimateOf(chooser.Best()).milliseconds));
  }
  const base::Json learned = chooser.Learned();
  TreeChooser again(family);
  again.Learn(base::JsonView(learned, "learned"));
}

TEST(TreeChooserTest, WhatWasLearnedIsCheckedAndUnknownTreesArePassedOver) {
  const std::vector<FamilyTree> family = TreeFamily({}, kFourHeads);
  TreeChooser chooser(family);
  std::mt19937 random(9);
  Decode(chooser, family, {.cost = Flat, .chance = kGood, .noise = 0}, 200, random);
  const base::Json learned = chooser.Learned();
  const std::vector<FamilyTree> small = TreeFamily({}, {.num_heads = 2, .vocab_size = 1000, .max_nodes = 512});
  TreeChooser fewer(small);
  fewer.Learn(base::JsonView(learned, "learned"));
  EXPECT_GT(fewer.Best(), 0);
  for (const char* key : {"trees", "nodes", "paused", "pause"}) {
    base::Json bad = learned;
    bad.erase(key);
    TreeChooser untouched(family);
    EXPECT_THROW(untouched.Learn(base::JsonView(bad, "learned")), FileError) << key;
    EXPECT_EQ(untouched.Next(), 0);
  }
}

}  // namespace
}  // namespace hydrant::tree::chooser_test
