// SPDX-License-Identifier: Apache-2.0
// Trees found from data: which nodes a tree of each size should have, by what recorded replies would have accepted.
// docs/algorithms/tree_search.md
#pragma once

#include <cstdint>
#include <vector>

#include "tree/replay.h"
#include "tree/topology.h"

namespace hydrant::tree {

// Which rows of a record a node is judged by.
enum class CountedRows {
  kVisited,  // those at which steps with the tree so far begin: what decoding sees
  kAll,      // every row alike: the largest shares
};

struct GrowOptions {
  int32_t max_nodes = 100;  // drafted ones
  int32_t max_depth = Topology::kMaxDepth;
  CountedRows rows = CountedRows::kVisited;
};

// The paths of the drafted nodes in the order in which a tree takes them, so that every beginning is a tree. Each next
// node is the one that is reached most often, of those whose parent and previous sibling are there already; of equals
// the one that more of all rows reach, then the shallower one, then by path. Fewer than max_nodes where nothing else is
// ever reached.
std::vector<std::vector<int32_t>> GrowTree(const RankTable& table, const GrowOptions& options);

// Medusa's own search (arXiv 2401.10774, section 2.3.3): the nodes with the largest products of the heads' accuracies,
// as if the levels of a row had nothing to do with each other. The accuracy of rank r at level d is its share of the
// rows that have a rank at the level before.
std::vector<std::vector<int32_t>> GrowIndependentTree(const RankTable& table, const GrowOptions& options);

// The tree of the first `count` of them; with 0 the root alone.
Topology FirstNodes(const std::vector<std::vector<int32_t>>& paths, size_t count);

}  // namespace hydrant::tree
