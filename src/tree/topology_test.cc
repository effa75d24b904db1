// SPDX-License-Identifier: Apache-2.0
#include "tree/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "hydrant/error.h"
#include "tree/parse.h"
#include "tree/random_tree.h"

namespace hydrant::tree::topology_test {
namespace {

using Paths = std::vector<std::vector<int32_t>>;
using testing::ElementsAre;

std::string Refusal(const Paths& paths) {
  try {
    Topology::FromPaths(paths, "--tree");
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TopologyTest, RootAlone) {
  const Topology topology;
  EXPECT_EQ(topology.num_nodes(), 1);
  EXPECT_EQ(topology.max_depth(), 0);
  EXPECT_EQ(topology.width_at(0), 1);
  EXPECT_EQ(topology.max_children_at(0), 0);
  EXPECT_TRUE(topology.Paths().empty());
  EXPECT_EQ(Topology::FromPaths({}), topology);
}

TEST(TopologyTest, NumbersByLengthThenValue) {
  const Topology topology = Topology::FromPaths(Paths{{1}, {0, 1}, {1, 0, 0}, {0}, {1, 0}, {0, 0}});
  EXPECT_THAT(topology.parent(), ElementsAre(-1, 0, 0, 1, 1, 2, 5));
  EXPECT_THAT(topology.depth(), ElementsAre(0, 1, 1, 2, 2, 2, 3));
  EXPECT_THAT(topology.child_rank(), ElementsAre(0, 0, 1, 0, 1, 0, 0));
  EXPECT_THAT(topology.first_child(), ElementsAre(1, 3, 5, -1, -1, 6, -1));
  EXPECT_THAT(topology.num_children(), ElementsAre(2, 2, 1, 0, 0, 1, 0));
  EXPECT_EQ(topology.max_depth(), 3);
  EXPECT_EQ(topology.level_begin(2), 3);
  EXPECT_EQ(topology.width_at(2), 3);
  EXPECT_EQ(topology.max_children_at(1), 2);
  EXPECT_EQ(topology.max_children_at(3), 0);
  EXPECT_EQ(topology.num_leaves(), 3);
  EXPECT_THAT(topology.PathTo(6), ElementsAre(0, 2, 5, 6));
  EXPECT_THAT(topology.PathTo(0), ElementsAre(0));
  EXPECT_THAT(topology.Preorder(), ElementsAre(0, 1, 4, 2, 3, 5, 6));
  EXPECT_THAT(Topology().Preorder(), ElementsAre(0));
}

TEST(TopologyTest, KeepIsTheTreeOfTheKeptNodes) {
  std::mt19937 random(5);
  for (int32_t round = 0; round < 50; ++round) {
    const Topology topology = RandomTopology(random, 1 + static_cast<int32_t>(random() % 40), 6, 4);
    const Paths paths = topology.Paths();
    std::vector<uint8_t> kept(static_cast<size_t>(topology.num_nodes()), 0);
    kept[0] = 1;
    Paths kept_paths;
    for (size_t node = 1; node < kept.size(); ++node) {
      const auto parent = static_cast<size_t>(topology.parent()[node]);
      const bool sibling = topology.child_rank()[node] == 0 || kept[node - 1] != 0;
      if (kept[parent] == 0 || !sibling || random() % 4 == 0) continue;
      kept[node] = 1;
      kept_paths.push_back(paths[node - 1]);
    }
    EXPECT_EQ(topology.Keep(kept), Topology::FromPaths(kept_paths));
  }
}

TEST(TopologyTest, PathsOnlyImpliesPrefixes) {
  EXPECT_EQ(Topology::FromPaths(Paths{{0, 0, 0, 0}, {0, 1, 0}, {1, 0}}),
            Topology::FromPaths(Paths{{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}, {0, 1}, {0, 1, 0}, {1}, {1, 0}}));
  EXPECT_EQ(Topology::FromPaths(Paths{{0, 0, 0}}).num_nodes(), 4);
}

TEST(TopologyTest, PathWithoutItsParentIsRefusedByName) {
  EXPECT_EQ(Refusal({{0}, {0, 0, 0}}), "--tree: path [0,0,0] lacks its prefix [0,0], which is not listed");
  EXPECT_EQ(Refusal({{0}, {1}, {0, 0}, {2, 0}}), "--tree: path [2,0] lacks its prefix [2], which is not listed");
  // The shortest missing prefix of the first path at fault.
  EXPECT_EQ(Refusal({{0}, {0, 0}, {1, 0, 0, 0}}), "--tree: path [1,0,0,0] lacks its prefix [1], which is not listed");
}

TEST(TopologyTest, RanksMustNotSkip) {
  EXPECT_EQ(Refusal({{0}, {2}}),
            "--tree: path [2] skips a rank: the tree lacks [1] (children are numbered 0, 1, 2, ... without gaps)");
  EXPECT_EQ(Refusal({{0}, {0, 1}}),
            "--tree: path [0,1] skips a rank: the tree lacks [0,0] (children are numbered 0, 1, 2, ... without gaps)");
  // Paths only: an implied node skips.
  EXPECT_EQ(Refusal({{0, 0}, {2, 0}}),
            "--tree: path [2,0] skips a rank: the tree lacks [1] (children are numbered 0, 1, 2, ... without gaps)");
}

TEST(TopologyTest, OtherRefusals) {
  EXPECT_EQ(Refusal({{0}, {1}, {0}}), "--tree: path [0] is listed twice");
  EXPECT_EQ(Refusal({{0}, {}}), "--tree: path number 1 (counted from 0) is empty: the root is never listed");
  EXPECT_EQ(Refusal({{0}, {0, -1}}), "--tree: path [0,-1] has a negative rank, expected child ranks from 0");
  EXPECT_EQ(Refusal({std::vector<int32_t>(65, 0)}),
            "--tree: path [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,...] is 65 deep, at most 64 is possible");
  EXPECT_EQ(Refusal({std::vector<int32_t>(64, 0)}), "accepted");
}

TEST(TopologyTest, NodesAreBounded) {
  Paths wide;
  for (int32_t rank = 0; rank < Topology::kMaxNodes - 1; ++rank) wide.push_back({rank});
  EXPECT_EQ(Topology::FromPaths(wide).num_nodes(), Topology::kMaxNodes);
  wide.push_back({Topology::kMaxNodes - 1});
  EXPECT_EQ(Refusal(wide), "--tree: lists 4096 paths, at most 4095 are possible");
  Paths deep;  // 100 paths that imply 6300 nodes
  for (int32_t rank = 0; rank < 100; ++rank) {
    deep.emplace_back(64, 0);
    deep.back()[0] = rank;
  }
  EXPECT_THAT(Refusal(deep), testing::HasSubstr("has more than 4096 nodes"));
}

TEST(TopologyTest, CheckFitsNamesThePath) {
  const Topology topology = Topology::FromPaths(Paths{{0, 0, 0}, {0, 1}, {1}});
  EXPECT_NO_THROW(CheckFits(topology, {.num_heads = 3, .vocab_size = 2, .max_nodes = 6}, "--tree"));
  const auto refusal = [&](const Limits& limits) -> std::string {
    try {
      CheckFits(topology, limits, "--tree");
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({.num_heads = 2}), "--tree: path [0,0,0] is 3 deep, but the draft has 2 heads");
  EXPECT_EQ(refusal({.num_heads = 1}), "--tree: path [0,0] is 2 deep, but the draft has 1 head");
  EXPECT_EQ(refusal({.vocab_size = 1}), "--tree: a node of depth 0 has 2 children, but the vocabulary has 1 tokens");
  EXPECT_EQ(refusal({.max_nodes = 5}), "--tree: the tree has 6 nodes, root included; the row budget is 5");
}

void ExpectInvariants(const Topology& topology) {
  const NodeId n = topology.num_nodes();
  ASSERT_EQ(topology.level_begin(0), 0);
  ASSERT_EQ(topology.level_begin(topology.max_depth() + 1), n);
  int32_t children = 0;
  for (NodeId node = 0; node < n; ++node) {
    const auto i = static_cast<size_t>(node);
    children += topology.num_children()[i];
    ASSERT_GE(node, topology.level_begin(topology.depth()[i]));
    ASSERT_LT(node, topology.level_begin(topology.depth()[i] + 1));
    const std::vector<NodeId> path = topology.PathTo(node);
    ASSERT_EQ(path.size(), static_cast<size_t>(topology.depth()[i]) + 1);
    ASSERT_EQ(path.front(), 0);
    ASSERT_EQ(path.back(), node);
    if (node == 0) continue;
    const auto parent = static_cast<size_t>(topology.parent()[i]);
    ASSERT_LT(topology.parent()[i], node);
    ASSERT_EQ(topology.first_child()[parent] + topology.child_rank()[i], node);
    ASSERT_LT(topology.child_rank()[i], topology.num_children()[parent]);
  }
  ASSERT_EQ(children, n - 1);
  // Preorder is the order of the paths as words.
  std::vector<std::pair<std::vector<int32_t>, int32_t>> by_path;
  const std::vector<int32_t> preorder = topology.Preorder();
  const Paths paths = topology.Paths();
  for (NodeId node = 1; node < n; ++node) {
    by_path.emplace_back(paths[static_cast<size_t>(node) - 1], preorder[static_cast<size_t>(node)]);
  }
  std::ranges::sort(by_path);
  ASSERT_EQ(preorder[0], 0);
  for (size_t i = 0; i < by_path.size(); ++i) ASSERT_EQ(by_path[i].second, static_cast<int32_t>(i) + 1);
}

TEST(TopologyTest, PropertiesOfRandomTrees) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto size = 1 + static_cast<int32_t>(random() % 80);
    const Topology topology = RandomTopology(random, size, 1 + static_cast<int32_t>(random() % 8), 10);
    ExpectInvariants(topology);
    Paths paths = topology.Paths();
    EXPECT_TRUE(std::ranges::is_sorted(
        paths, [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; }));
    std::ranges::shuffle(paths, random);
    EXPECT_EQ(Topology::FromPaths(paths), topology);
    if (topology.num_nodes() > 1) {
      EXPECT_EQ(ParseTree(ToJson(topology)).topology, topology);
    }

    const auto n = 1 + static_cast<int32_t>(random() % static_cast<size_t>(topology.num_nodes()));
    const Topology first = topology.Truncate(n);
    ExpectInvariants(first);
    ASSERT_EQ(first.num_nodes(), n);
    for (NodeId node = 0; node < n; ++node) EXPECT_EQ(first.PathTo(node), topology.PathTo(node));

    const auto depth = static_cast<int32_t>(random() % 9);
    const Topology shallow = topology.CutToDepth(depth);
    ExpectInvariants(shallow);
    Paths expected = topology.Paths();
    std::erase_if(expected, [&](const auto& path) { return path.size() > static_cast<size_t>(depth); });
    EXPECT_EQ(shallow.Paths(), expected);
  }
}

}  // namespace
}  // namespace hydrant::tree::topology_test
