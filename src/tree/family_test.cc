// SPDX-License-Identifier: Apache-2.0
#include "tree/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hydrant::tree::family_test {
namespace {

TEST(TreeFamilyTest, GrowsFromNothingOverChainsToThePublishedTree) {
  const std::vector<FamilyTree> family = TreeFamily({}, {.num_heads = 4, .vocab_size = 1000, .max_nodes = 512});
  std::vector<std::string> names;
  for (const FamilyTree& tree : family) names.push_back(tree.name);
  EXPECT_THAT(names,
              testing::ElementsAre("nothing", "chain of 1", "chain of 2", "chain of 3", "chain of 4", "tree of 7",
                                   "tree of 11", "tree of 15", "tree of 23", "tree of 31", "tree of 47", "tree of 63"));
  EXPECT_EQ(family.back().topology, Preset("mc_sim_7b_63"));
  for (size_t i = 1; i < family.size(); ++i) {
    const auto larger = family[i].topology.Paths();
    for (const std::vector<int32_t>& path : family[i - 1].topology.Paths()) {
      EXPECT_THAT(larger, testing::Contains(path)) << family[i].name;
    }
  }
}

TEST(TreeFamilyTest, KeepsToHeadsVocabularyAndRows) {
  const std::vector<FamilyTree> two = TreeFamily({}, {.num_heads = 2, .vocab_size = 1000, .max_nodes = 16});
  for (const FamilyTree& tree : two) {
    EXPECT_LE(tree.topology.max_depth(), 2) << tree.name;
    EXPECT_LE(tree.topology.num_nodes(), 16) << tree.name;
  }
  for (const FamilyTree& tree : TreeFamily({}, {.num_heads = 3, .vocab_size = 2, .max_nodes = 512})) {
    for (int32_t depth = 0; depth < tree.topology.max_depth(); ++depth) {
      EXPECT_LE(tree.topology.max_children_at(depth), 2) << tree.name;
    }
  }
}

TEST(TreeFamilyTest, TakesTheFoldersOwnTreesOnce) {
  const std::vector<std::vector<int32_t>> wide = {{0}, {1}, {0, 0}, {0, 0, 0}}, chain = {{0}, {0, 0}};
  const std::vector<NamedTopology> own = {{"a", Topology::FromPaths(wide)}, {"b", Topology::FromPaths(chain)}};
  const std::vector<FamilyTree> family = TreeFamily(own, {.num_heads = 2, .vocab_size = 1000, .max_nodes = 512});
  EXPECT_EQ(family.back().name, "a");
  EXPECT_EQ(family.back().topology, own[0].topology.CutToDepth(2));
}

}  // namespace
}  // namespace hydrant::tree::family_test
