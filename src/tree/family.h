// SPDX-License-Identifier: Apache-2.0
// The trees that `--tree auto` chooses from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hydrant/generation.h"
#include "tree/parse.h"
#include "tree/topology.h"

namespace hydrant::tree {

// A tree in a given shape, or one that grows from what the drafts say.
struct FamilyTree {
  std::string name;
  Topology topology;                        // of a shape; the root alone where it grows
  DynamicTreeOptions grown = {.nodes = 0};  // nodes > 0: it grows so far

  int32_t num_drafted() const { return grown.nodes > 0 ? grown.nodes : topology.num_nodes() - 1; }
  int32_t depth() const { return grown.nodes > 0 ? grown.depth : topology.max_depth(); }
};

// Smallest first: nothing (the root alone), chains of 1 to `num_heads`, the longest chain with the nodes of
// mc_sim_7b_63 in the order of their share (8 to 64 rows), then `own`, the trees of the heads' folder, cut to
// num_heads. Trees with more than limits.max_nodes nodes, or more children than the vocabulary has tokens, are left
// out.
std::vector<FamilyTree> TreeFamily(std::span<const NamedTopology> own, const Limits& limits);

// For drafters that grow trees. Nothing first, then from one node to 63 nodes of 8 levels. Those that are too deep or
// too large for the limits are left out.
std::vector<FamilyTree> GrownFamily(const Limits& limits);

}  // namespace hydrant::tree
