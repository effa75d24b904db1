// SPDX-License-Identifier: Apache-2.0
#include "draft/static_tree.h"

#include <gtest/gtest.h>

#include <random>

#include "tree/random_tree.h"

namespace hydrant::draft::static_tree_test {
namespace {

TEST(StaticTreeTest, ABudgetCutsDepthAndThenNodes) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const tree::Topology whole = tree::RandomTopology(random, 30, 6, 4);
    StaticTree shape(whole);
    for (int32_t depth = 0; depth <= 7; ++depth) {
      for (const int32_t nodes : {0, 1, 5, 28, 29, 100}) {
        const Budget budget{.max_nodes = nodes, .max_depth = depth};
        tree::Topology expected = depth < whole.max_depth() ? whole.CutToDepth(depth) : whole;
        EXPECT_EQ(shape.FitsIn(budget), depth >= whole.max_depth() && nodes >= whole.num_nodes() - 1);
        if (expected.num_nodes() - 1 > nodes) expected = expected.Truncate(nodes + 1);
        EXPECT_EQ(shape.Within(budget), expected);
        tree::TokenTree tree{.topology = whole, .tokens = {1, 2}, .scores = {1}, .source = DraftSource::kLookup};
        shape.Plant(budget, 7, tree);
        EXPECT_EQ(tree.topology, expected);
        EXPECT_EQ(tree.tokens.size(), static_cast<size_t>(expected.num_nodes()));
        EXPECT_EQ(tree.tokens.front(), 7);
        EXPECT_TRUE(tree.scores.empty() && tree.source != DraftSource::kLookup);
      }
    }
  }
}

TEST(ChainsTest, HaveOneNodeALevel) {
  Chains chains;
  for (const int32_t nodes : {3, 0, 5, 3}) {
    EXPECT_EQ(chains.Of(nodes).num_nodes(), nodes + 1);
    EXPECT_EQ(chains.Of(nodes).max_depth(), nodes);
  }
}

}  // namespace
}  // namespace hydrant::draft::static_tree_test
