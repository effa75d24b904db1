// SPDX-License-Identifier: Apache-2.0
#include "tree/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tree/parse.h"
#include "tree/random_tree.h"

namespace hydrant::tree::merge_test {
namespace {

using testing::ElementsAre;
using Path = std::vector<int32_t>;

Path TokensTo(const TokenTree& tree, NodeId node) {
  Path path;
  for (const NodeId on_path : tree.topology.PathTo(node)) path.push_back(tree.tokens[static_cast<size_t>(on_path)]);
  return path;
}

std::vector<Path> PathsOf(const TokenTree& tree) {
  std::vector<Path> paths;
  for (NodeId node = 0; node < tree.topology.num_nodes(); ++node) paths.push_back(TokensTo(tree, node));
  return paths;
}

TokenTree Tree(const char* shape, std::vector<int32_t> tokens) {
  TokenTree tree;
  tree.topology = ParseTree(shape).topology;
  tree.tokens = std::move(tokens);
  tree.source = DraftSource::kHeads;
  return tree;
}

TEST(MergeTest, PathsOfBothStandOnceAndTheFirstTreesComeFirst) {
  const TokenTree a = Tree("[[0,0],[1]]", {7, 1, 2, 3});           // 1 (3), 2
  const TokenTree b = Tree("[[0,0],[0,1],[1]]", {7, 5, 1, 3, 4});  // 5 (3, 4), 1
  const TokenTree* const trees[] = {&a, &b};
  TokenTree merged;
  Merge(trees, merged);
  EXPECT_THAT(merged.tokens, ElementsAre(7, 1, 2, 5, 3, 3, 4));
  EXPECT_THAT(merged.topology.parent(), ElementsAre(-1, 0, 0, 0, 1, 3, 3));
  EXPECT_TRUE(merged.scores.empty());
  EXPECT_EQ(merged.source, DraftSource::kHeads);
}

TEST(MergeTest, ScoresAreTheLargestAndRootsAloneCountForNothing) {
  TokenTree a = Tree("[[0]]", {7, 1}), b = Tree("[[0],[1]]", {7, 1, 2});
  a.scores = {1, 0.25F};
  b.scores = {1, 0.5F, 0.125F};
  TokenTree nothing;
  nothing.Reset(7);
  const TokenTree* const trees[] = {&a, &b, &nothing};
  TokenTree merged;
  Merge(trees, merged);
  EXPECT_THAT(merged.tokens, ElementsAre(7, 1, 2));
  EXPECT_THAT(merged.scores, ElementsAre(1, 0.5F, 0.125F));
}

TEST(MergeTest, NothingDraftedIsTheRoot) {
  TokenTree nothing, merged = Tree("[[0]]", {1, 2});
  nothing.Reset(4);
  const TokenTree* const trees[] = {&nothing, &nothing};
  Merge(trees, merged);
  EXPECT_EQ(merged.topology.num_nodes(), 1);
  EXPECT_THAT(merged.tokens, ElementsAre(4));
  EXPECT_EQ(merged.source, DraftSource::kBase);
}

// The slow twin: sets of paths.
TEST(MergeTest, RandomTreesGiveTheUnionOfTheirPaths) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenTree> trees(1 + random() % 4);
    std::set<Path> expected;
    for (TokenTree& tree : trees) {
      tree.topology = RandomTopology(random, 1 + static_cast<int32_t>(random() % 30), 4, 6);
      tree.tokens.assign(static_cast<size_t>(tree.topology.num_nodes()), 9);
      for (NodeId node = 0; node < tree.topology.num_nodes(); ++node) {
        const auto n = static_cast<size_t>(node);
        Path tokens = {0, 1, 2, 3, 4, 5, 6, 7};
        std::ranges::shuffle(tokens, random);
        for (int32_t i = 0; i < tree.topology.num_children()[n]; ++i) {
          tree.tokens[static_cast<size_t>(tree.topology.first_child()[n] + i)] = tokens[static_cast<size_t>(i)];
        }
      }
      for (const Path& path : PathsOf(tree)) expected.insert(path);
    }
    std::vector<const TokenTree*> pointers;
    for (const TokenTree& tree : trees) pointers.push_back(&tree);
    TokenTree merged;
    Merge(pointers, merged);
    const std::vector<Path> paths = PathsOf(merged);
    EXPECT_EQ(paths.size(), expected.size());
    EXPECT_EQ(std::set<Path>(paths.begin(), paths.end()), expected);
  }
}

}  // namespace
}  // namespace hydrant::tree::merge_test
