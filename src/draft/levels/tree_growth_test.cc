// SPDX-License-Identifier: Apache-2.0
// Dynamic trees against the obvious way: all candidates in one list, sorted.
#include "draft/levels/tree_growth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace hydrant::draft::tree_growth_test {
namespace {

using Path = std::vector<int32_t>;

// A made-up drafter: what follows a path, by the path alone.
struct Guesses {
  std::vector<int32_t> tokens;
  std::vector<float> probabilities;
};
Guesses GuessesAfter(const Path& path, int32_t count, uint32_t seed) {
  std::seed_seq sequence(path.begin(), path.end());
  std::vector<uint32_t> state(1);
  sequence.generate(state.begin(), state.end());
  std::mt19937 random(state.front() + seed);
  Guesses guesses;
  double left = 1;
  for (int32_t i = 0; i < count; ++i) {
    guesses.tokens.push_back(static_cast<int32_t>(random() % 1000) * 64 + i);
    const double share = left * (0.2 + 0.5 * static_cast<double>(random() % 1000) / 1000);
    guesses.probabilities.push_back(static_cast<float>(share));
    left -= share;
  }
  std::ranges::sort(guesses.probabilities, std::greater());
  return guesses;
}

// EAGLE-2's tree by its definition: the paths of its nodes.
std::set<Path> Expected(const DynamicTreeOptions& options, uint32_t seed) {
  struct Node {
    Path path;
    double score;
  };
  std::vector<Node> all, level = {{{}, 0}};
  const auto better = [](const Node& a, const Node& b) { return a.score > b.score; };
  for (int32_t depth = 0; depth < options.depth; ++depth) {
    std::vector<Node> next;
    for (const Node& node : level) {
      const Guesses guesses = GuessesAfter(node.path, options.width, seed);
      for (size_t i = 0; i < guesses.tokens.size(); ++i) {
        next.push_back({node.path, node.score + std::log(static_cast<double>(guesses.probabilities[i]))});
        next.back().path.push_back(guesses.tokens[i]);
      }
    }
    all.insert(all.end(), next.begin(), next.end());
    std::ranges::stable_sort(next, better);
    next.resize(std::min(next.size(), static_cast<size_t>(options.width)));
    level = next;
  }
  std::ranges::stable_sort(all, better);
  all.resize(std::min(all.size(), static_cast<size_t>(options.nodes)));
  std::set<Path> paths;
  for (const Node& node : all) paths.insert(node.path);
  return paths;
}

struct Grown {
  tree::TokenTree tree;
  int32_t num_rows = 0;  // expansions
};

Grown Grow(const DynamicTreeOptions& options, const Budget& budget, float p_min, uint32_t seed) {
  const std::vector<int32_t> output = {7};
  Grown grown;
  ProposeInput input;
  input.output = output;
  input.budget = budget;
  input.dynamic = &options;
  input.min_probability = p_min;
  input.tree = &grown.tree;
  DynamicGrowth growth;
  growth.Start(input);
  std::vector<Path> above;
  for (int32_t depth = 0;; ++depth) {
    const std::span<const Expansion> level = growth.Level(depth);
    if (level.empty()) break;
    std::vector<Path> paths;
    for (const Expansion& expansion : level) {
      paths.push_back(depth == 0 ? Path() : above[static_cast<size_t>(expansion.parent)]);
      if (depth > 0) paths.back().push_back(expansion.token);
    }
    for (size_t e = 0; e < paths.size(); ++e) {
      const Guesses guesses = GuessesAfter(paths[e], options.width, seed);
      growth.Fill(static_cast<int32_t>(e), guesses.tokens, guesses.probabilities);
    }
    grown.num_rows += static_cast<int32_t>(paths.size());
    above = paths;
  }
  growth.Finish();
  return grown;
}

std::set<Path> PathsOf(const tree::TokenTree& tree) {
  std::set<Path> paths;
  for (tree::NodeId node = 1; node < tree.topology.num_nodes(); ++node) {
    Path path;
    for (const tree::NodeId on : tree.topology.PathTo(node)) path.push_back(tree.tokens[static_cast<size_t>(on)]);
    path.erase(path.begin());
    paths.insert(path);
  }
  return paths;
}

TEST(DynamicGrowthTest, KeepsTheBestPathsOfAllThatWereDrafted) {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const DynamicTreeOptions options{.nodes = 1 + static_cast<int32_t>(random() % 70),
                                     .depth = 1 + static_cast<int32_t>(random() % 7),
                                     .width = 1 + static_cast<int32_t>(random() % 10)};
    SCOPED_TRACE(seed);
    const Grown grown = Grow(options, {.max_nodes = 511, .max_depth = 64}, 0, seed);
    EXPECT_EQ(PathsOf(grown.tree), Expected(options, seed));
    EXPECT_EQ(grown.tree.source, DraftSource::kHeads);
    EXPECT_LE(grown.num_rows, 1 + (options.depth - 1) * options.width);
    for (size_t node = 1; node < grown.tree.scores.size(); ++node) {
      const auto parent = static_cast<size_t>(grown.tree.topology.parent()[node]);
      EXPECT_LE(grown.tree.scores[node], grown.tree.scores[parent]);
    }
  }
}

TEST(DynamicGrowthTest, StaysWithinItsBudget) {
  const DynamicTreeOptions options{.nodes = 40, .depth = 6, .width = 5};
  EXPECT_EQ(Grow(options, {.max_nodes = 0, .max_depth = 9}, 0, 1).tree.topology.num_nodes(), 1);
  EXPECT_EQ(Grow(options, {.max_nodes = 7, .max_depth = 9}, 0, 1).tree.topology.num_nodes(), 8);
  EXPECT_EQ(PathsOf(Grow(options, {.max_nodes = 99, .max_depth = 2}, 0, 1).tree),
            Expected({.nodes = 40, .depth = 2, .width = 5}, 1));
}

TEST(DynamicGrowthTest, UnlikelyTokensAreLeftOut) {
  const DynamicTreeOptions options{.nodes = 99, .depth = 4, .width = 6};
  const Grown all = Grow(options, {.max_nodes = 511, .max_depth = 64}, 0, 5);
  const Grown likely = Grow(options, {.max_nodes = 511, .max_depth = 64}, 0.2F, 5);
  EXPECT_LT(likely.tree.topology.num_nodes(), all.tree.topology.num_nodes());
  EXPECT_LT(likely.num_rows, all.num_rows);
  for (const Path& path : PathsOf(likely.tree)) {
    Path before(path.begin(), path.end() - 1);
    const Guesses guesses = GuessesAfter(before, options.width, 5);
    const auto place = std::ranges::find(guesses.tokens, path.back()) - guesses.tokens.begin();
    EXPECT_GE(guesses.probabilities[static_cast<size_t>(place)], 0.2F);
  }
}

}  // namespace
}  // namespace hydrant::draft::tree_growth_test
