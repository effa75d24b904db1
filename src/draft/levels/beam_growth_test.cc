// SPDX-License-Identifier: Apache-2.0
// Trees of beams against a search that keeps every continuation of every beam.
#include "draft/levels/beam_growth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <vector>

namespace hydrant::draft::beam_growth_test {
namespace {

using Path = std::vector<int32_t>;

constexpr int32_t kVocab = 80;

// A made-up drafter: the logits after a path, by the path alone. Many are equal.
std::vector<double> LogitsAfter(const Path& path, uint32_t seed) {
  std::seed_seq sequence(path.begin(), path.end());
  std::vector<uint32_t> state(1);
  sequence.generate(state.begin(), state.end());
  std::mt19937 random(state.front() + seed);
  std::vector<double> logits;
  for (int32_t t = 0; t < kVocab; ++t) logits.push_back(static_cast<double>(random() % 64) / 16);
  // What follows other paths must not score the same: the order of equal beams is nobody's promise.
  logits[random() % kVocab] += static_cast<double>(random() % 100000) / 20000;
  return logits;
}

struct Guess {
  int32_t token;
  double probability;
};

// All tokens, best first, ties to the lower one.
std::vector<Guess> GuessesAfter(const Path& path, uint32_t seed) {
  const std::vector<double> logits = LogitsAfter(path, seed);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  std::vector<Guess> guesses;
  for (int32_t t = 0; t < kVocab; ++t) guesses.push_back({t, std::exp(logits[static_cast<size_t>(t)]) / sum});
  std::ranges::stable_sort(guesses, std::greater(), &Guess::probability);
  return guesses;
}

struct Beam {
  Path path;
  double score = 0;
};

// The authors' search, step by step: warped logits, log-softmax over all tokens, the best of all continuations.
std::vector<Beam> SlowBeams(const BeamOptions& options, int32_t num_best, uint32_t seed) {
  std::vector<Beam> beams = {{}};
  for (int32_t level = 0; level < LevelsOf(options); ++level) {
    std::vector<Beam> all;
    for (const Beam& beam : beams) {
      std::vector<double> logits = LogitsAfter(beam.path, seed);
      std::vector<double> sorted = logits;
      std::ranges::sort(sorted, std::greater());
      if (num_best > 0) {
        for (double& logit : logits) logit = logit < sorted[static_cast<size_t>(num_best - 1)] ? -50000 : logit;
      }
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      std::vector<Beam> own;
      for (int32_t t = 0; t < kVocab; ++t) {
        own.push_back({beam.path, beam.score + logits[static_cast<size_t>(t)] - std::log(sum)});
        own.back().path.push_back(t);
      }
      std::ranges::stable_sort(own, std::greater(), &Beam::score);
      all.insert(all.end(), own.begin(), own.end());
    }
    std::ranges::stable_sort(all, std::greater(), &Beam::score);
    all.resize(std::min(all.size(), static_cast<size_t>(options.width)));
    beams = all;
  }
  return beams;
}

struct Grown {
  tree::TokenTree tree;
  int32_t num_rows = 0;  // expansions
};

Grown Grow(const BeamOptions& options, int32_t num_best, const Budget& budget, float p_min, uint32_t seed) {
  const std::vector<int32_t> output = {7};
  Grown grown;
  ProposeInput input;
  input.output = output;
  input.budget = budget;
  input.beam = &options;
  input.min_probability = p_min;
  input.tree = &grown.tree;
  BeamGrowth growth;
  growth.Start(input, num_best);
  std::vector<Path> above;
  for (int32_t depth = 0;; ++depth) {
    const std::span<const Expansion> level = growth.Level(depth);
    if (level.empty()) break;
    std::vector<Path> paths;
    for (const Expansion& expansion : level) {
      paths.push_back(depth == 0 ? Path() : above[static_cast<size_t>(expansion.parent)]);
      if (depth > 0) paths.back().push_back(expansion.token);
    }
    const auto wanted = static_cast<size_t>(std::min(level.front().num_candidates, kVocab));
    for (size_t e = 0; e < paths.size(); ++e) {
      std::vector<int32_t> tokens;
      std::vector<float> probabilities;
      for (const Guess& guess : GuessesAfter(paths[e], seed)) {
        if (tokens.size() == wanted) break;
        tokens.push_back(guess.token);
        probabilities.push_back(static_cast<float>(guess.probability));
      }
      growth.Fill(static_cast<int32_t>(e), tokens, probabilities);
    }
    grown.num_rows += static_cast<int32_t>(paths.size());
    above = paths;
  }
  // Other sequences of a call may have more levels.
  EXPECT_TRUE(growth.Level(64).empty());
  growth.Finish();
  return grown;
}

// Paths of all nodes but the root, in the order of the nodes.
std::vector<Path> PathsOf(const tree::TokenTree& tree) {
  std::vector<Path> paths;
  for (tree::NodeId node = 1; node < tree.topology.num_nodes(); ++node) {
    Path path;
    for (const tree::NodeId on : tree.topology.PathTo(node)) path.push_back(tree.tokens[static_cast<size_t>(on)]);
    path.erase(path.begin());
    paths.push_back(path);
  }
  return paths;
}

// The nodes of beams, each once.
std::set<Path> NodesOf(const std::vector<Beam>& beams) {
  std::set<Path> nodes;
  for (const Beam& beam : beams) {
    for (size_t length = 1; length <= beam.path.size(); ++length) {
      nodes.insert(Path(beam.path.begin(), beam.path.begin() + static_cast<int64_t>(length)));
    }
  }
  return nodes;
}

TEST(BeamGrowthTest, FindsTheBeamsOfAFullSearch) {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const BeamOptions options{.width = 1 + static_cast<int32_t>(random() % 12),
                              .length = 2 + static_cast<int32_t>(random() % 5)};
    const int32_t num_best = seed % 3 == 0 ? 0 : options.width + static_cast<int32_t>(random() % 20);
    const Grown grown = Grow(options, num_best, {.max_nodes = 511, .max_depth = 64}, 0, seed);
    const std::vector<Beam> beams = SlowBeams(options, num_best, seed);
    const std::vector<Path> paths = PathsOf(grown.tree);
    EXPECT_EQ(std::set<Path>(paths.begin(), paths.end()), NodesOf(beams));
    EXPECT_EQ(paths.size(), NodesOf(beams).size());
    EXPECT_EQ(grown.tree.source, DraftSource::kHeads);
    EXPECT_LE(grown.num_rows, 1 + (LevelsOf(options) - 1) * options.width);
    for (const Beam& beam : beams) {
      const auto node = static_cast<size_t>(std::ranges::find(paths, beam.path) - paths.begin()) + 1;
      EXPECT_NEAR(std::log(static_cast<double>(grown.tree.scores[node])), beam.score, 1e-4);
    }
  }
}

TEST(BeamGrowthTest, SiblingsStandBestFirst) {
  const Grown grown = Grow({.width = 9, .length = 4}, 50, {.max_nodes = 511, .max_depth = 64}, 0, 4);
  const tree::Topology& topology = grown.tree.topology;
  for (tree::NodeId node = 2; node < topology.num_nodes(); ++node) {
    const auto n = static_cast<size_t>(node);
    if (topology.parent()[n] == topology.parent()[n - 1]) {
      EXPECT_LE(grown.tree.scores[n], grown.tree.scores[n - 1]);
    }
  }
}

TEST(BeamGrowthTest, StaysWithinItsBudget) {
  const BeamOptions options{.width = 6, .length = 5};
  EXPECT_EQ(Grow(options, 50, {.max_nodes = 0, .max_depth = 9}, 0, 1).tree.topology.num_nodes(), 1);
  const std::vector<Path> shallow = PathsOf(Grow(options, 50, {.max_nodes = 99, .max_depth = 2}, 0, 1).tree);
  EXPECT_EQ(std::set<Path>(shallow.begin(), shallow.end()), NodesOf(SlowBeams({.width = 6, .length = 3}, 50, 1)));
  // The best beams come first.
  const std::vector<Beam> beams = SlowBeams(options, 50, 1);
  for (int32_t most = 4; most < 24; ++most) {
    const std::vector<Path> paths = PathsOf(Grow(options, 50, {.max_nodes = most, .max_depth = 9}, 0, 1).tree);
    EXPECT_EQ(paths.size(), std::min(static_cast<size_t>(most), NodesOf(beams).size()));
    EXPECT_NE(std::ranges::find(paths, beams.front().path), paths.end());
    for (const Path& path : paths) EXPECT_TRUE(NodesOf(beams).contains(path));
  }
  EXPECT_EQ(Grow(options, 50, {.max_nodes = 2, .max_depth = 9}, 0, 1).tree.topology.num_nodes(), 3);
}

// Beams end where nothing likely goes on from them, and are in the tree all the same.
TEST(BeamGrowthTest, UnlikelyTokensAreLeftOut) {
  const BeamOptions options{.width = 6, .length = 6};
  const float least = 0.02F;
  const Grown all = Grow(options, 0, {.max_nodes = 511, .max_depth = 64}, 0, 5);
  const Grown likely = Grow(options, 0, {.max_nodes = 511, .max_depth = 64}, least, 5);
  EXPECT_LT(likely.num_rows, all.num_rows);
  EXPECT_GT(likely.tree.topology.num_nodes(), 1);
  for (const Path& path : PathsOf(likely.tree)) {
    const std::vector<Guess> guesses = GuessesAfter(Path(path.begin(), path.end() - 1), 5);
    const auto guess = std::ranges::find(guesses, path.back(), &Guess::token);
    EXPECT_GE(guess->probability, static_cast<double>(least) * 0.9999);
  }
  for (tree::NodeId node = 1; node < likely.tree.topology.num_nodes(); ++node) {
    const auto n = static_cast<size_t>(node);
    if (likely.tree.topology.num_children()[n] > 0) {
      EXPECT_GE(likely.tree.scores[n], least);
    }
  }
}

}  // namespace
}  // namespace hydrant::draft::beam_growth_test
