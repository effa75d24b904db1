// SPDX-License-Identifier: Apache-2.0
#include "tree/operations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tree/random_tree.h"

namespace hydrant::tree::operations_test {
namespace {

constexpr int32_t kVocab = 12;

// Distinct tokens among siblings, filled the way drafters do.
std::vector<int32_t> FillAll(const Topology& topology, std::mt19937& random) {
  std::vector<int32_t> tokens(static_cast<size_t>(topology.num_nodes()), 0);
  for (size_t node = 0; node < tokens.size(); ++node) {
    std::vector<int32_t> candidates(kVocab);
    for (int32_t t = 0; t < kVocab; ++t) candidates[static_cast<size_t>(t)] = t;
    std::shuffle(candidates.begin(), candidates.end(), random);
    FillChildren(topology.first_child()[node], topology.num_children()[node], candidates.data(), tokens.data());
  }
  return tokens;
}

// The slow twin: every node whose whole path was chosen; the deepest one is where the walk ends.
std::vector<NodeId> NaiveWalk(const Topology& topology, const std::vector<int32_t>& tokens,
                              const std::vector<int32_t>& chosen) {
  std::vector<NodeId> best = {0};
  for (NodeId node = 0; node < topology.num_nodes(); ++node) {
    const std::vector<NodeId> path = topology.PathTo(node);
    bool matches = true;
    for (size_t i = 1; i < path.size(); ++i) {
      matches &= tokens[static_cast<size_t>(path[i])] == chosen[static_cast<size_t>(path[i - 1])];
    }
    if (matches && path.size() > best.size()) best = path;
  }
  return best;
}

TEST(OperationsTest, WalkEqualsTheNaiveWalk) {
  std::mt19937 random(11);
  int32_t deepest = 0;
  for (int round = 0; round < 500; ++round) {
    const Topology topology = RandomTopology(random, 1 + static_cast<int32_t>(random() % 60), 6, kVocab);
    const std::vector<int32_t> tokens = FillAll(topology, random);
    std::vector<int32_t> chosen;  // by node: often a child's token, so that walks go deep
    for (size_t node = 0; node < tokens.size(); ++node) {
      const int32_t children = topology.num_children()[node];
      const bool follow = children > 0 && random() % 4 != 0;
      const auto child = static_cast<size_t>(
          topology.first_child()[node] + static_cast<int32_t>(random() % static_cast<size_t>(std::max(children, 1))));
      chosen.push_back(follow ? tokens[child] : static_cast<int32_t>(random() % kVocab));
    }
    std::vector<NodeId> path(static_cast<size_t>(topology.max_depth()) + 1), visited;
    int32_t bonus = -1;
    const int32_t accepted = WalkTree(
        topology.first_child().data(), topology.num_children().data(), tokens.data(),
        [&](NodeId node) {
          visited.push_back(node);
          return chosen[static_cast<size_t>(node)];
        },
        path.data(), &bonus);
    path.resize(static_cast<size_t>(accepted));
    path.insert(path.begin(), 0);
    const std::vector<NodeId> expected = NaiveWalk(topology, tokens, chosen);
    ASSERT_EQ(path, expected);
    ASSERT_EQ(visited, expected);
    ASSERT_EQ(bonus, chosen[static_cast<size_t>(expected.back())]);
    deepest = std::max(deepest, accepted);
  }
  EXPECT_GE(deepest, 4);  // or the walks prove little
}

}  // namespace
}  // namespace hydrant::tree::operations_test
