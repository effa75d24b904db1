// SPDX-License-Identifier: Apache-2.0
// The trees that `--tree auto` chooses from.
#pragma once

#include <span>
#include <vector>

#include "tree/parse.h"
#include "tree/topology.h"

namespace hydrant::tree {

// Smallest first: nothing (the root alone), chains of 1 to `num_heads`, the longest chain with the nodes of
// mc_sim_7b_63 in the order of their share (8 to 64 rows), then `own`, the trees of the heads' folder, cut to
// num_heads. Trees with more than limits.max_nodes nodes, or more children than the vocabulary has tokens, are left
// out.
std::vector<NamedTopology> TreeFamily(std::span<const NamedTopology> own, const Limits& limits);

}  // namespace hydrant::tree
