// SPDX-License-Identifier: Apache-2.0
// Random topologies for property tests.
#pragma once

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "tree/topology.h"

namespace hydrant::tree {

// A valid tree of `num_nodes` (root included), grown one random child at a time; no node deeper than `max_depth`.
template <typename Random>
Topology RandomTopology(Random& random, int32_t num_nodes, int32_t max_depth, int32_t max_children) {
  std::vector<std::vector<int32_t>> nodes(1);  // nodes[0] = the root's empty path
  std::vector<int32_t> children(1, 0);
  while (static_cast<int32_t>(nodes.size()) < num_nodes) {
    std::vector<size_t> open;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (static_cast<int32_t>(nodes[i].size()) < max_depth && children[i] < max_children) open.push_back(i);
    }
    if (open.empty()) break;
    const size_t parent = open[random() % open.size()];
    std::vector<int32_t> path = nodes[parent];
    path.push_back(children[parent]++);
    nodes.push_back(std::move(path));
    children.push_back(0);
  }
  return Topology::FromPaths(std::span(nodes).subspan(1));
}

}  // namespace hydrant::tree
