// SPDX-License-Identifier: Apache-2.0
#include "tree/family.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace hydrant::tree {
namespace {

// mc_sim_7b_63 in the order in which it was grown, by share (FasterDecoding/Medusa, medusa/model/medusa_choices.py,
// Apache-2.0): one digit per rank.
constexpr std::string_view kByShare =
    "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 "
    "011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070";

// Rows of the wider trees, the root included. Some lie just below sizes at which a kernel's cost steps up (16 and 32
// rows). So a handful of trees covers what differs between machines.
constexpr std::array<int32_t, 7> kRows = {8, 12, 16, 24, 32, 48, 64};

// Length of the longest chain. (Published heads draft fewer levels, and each chain costs a measured step.)
constexpr int32_t kDeepestChain = 8;

using Paths = std::vector<std::vector<int32_t>>;

Paths PathsByShare(int32_t depth) {
  Paths paths(1);
  for (const char c : kByShare) {
    if (c == ' ') {
      paths.emplace_back();
    } else {
      paths.back().push_back(c - '0');
    }
  }
  std::erase_if(paths, [&](const auto& path) { return static_cast<int32_t>(path.size()) > depth; });
  return paths;
}

bool IsChain(const std::vector<int32_t>& path) {
  return std::ranges::all_of(path, [](int32_t rank) { return rank == 0; });
}

void AddIfNew(const std::string& name, Topology topology, const Limits& limits, std::vector<FamilyTree>& family) {
  topology = topology.CutToDepth(std::min(limits.num_heads, topology.max_depth()));
  if (topology.num_nodes() > limits.max_nodes) return;
  for (int32_t depth = 0; depth < topology.max_depth(); ++depth) {
    if (topology.max_children_at(depth) > limits.vocab_size) return;
  }
  const bool known = std::ranges::any_of(family, [&](const auto& other) { return other.topology == topology; });
  if (!known) family.push_back({.name = name, .topology = std::move(topology)});
}

}  // namespace

std::vector<FamilyTree> TreeFamily(std::span<const NamedTopology> own, const Limits& limits) {
  std::vector<FamilyTree> family;
  AddIfNew("nothing", Topology(), limits, family);
  Paths paths;
  for (int32_t depth = 1; depth <= std::min(limits.num_heads, kDeepestChain); ++depth) {
    paths.emplace_back(static_cast<size_t>(depth), 0);
    AddIfNew("chain of " + std::to_string(depth), Topology::FromPaths(paths), limits, family);
  }
  size_t stop = 0;
  for (const std::vector<int32_t>& path : PathsByShare(limits.num_heads)) {
    if (IsChain(path)) continue;
    paths.push_back(path);
    const auto rows = static_cast<int32_t>(paths.size()) + 1;
    while (stop < kRows.size() && kRows[stop] < rows) ++stop;
    if (stop == kRows.size() || rows != kRows[stop]) continue;
    AddIfNew("tree of " + std::to_string(rows - 1), Topology::FromPaths(paths), limits, family);
  }
  for (const NamedTopology& tree : own) {
    AddIfNew(tree.name.substr(tree.name.rfind('/') + 1), tree.topology, limits, family);  // a file without its folder
  }
  return family;
}

std::vector<FamilyTree> GrownFamily(const Limits& limits) {
  // Nodes that a level goes on from, at most. (EAGLE's top_k.)
  constexpr int32_t kWidth = 10;
  struct Size {
    int32_t nodes, depth;
  };
  // About in the order of what they cost. The second one opens (TreeChooser).
  constexpr std::array<Size, 20> kSizes = {{{1, 1}, {2, 2},  {2, 1},  {4, 1},  {4, 2},  {3, 3},  {6, 3},
                                            {8, 2}, {4, 4},  {8, 4},  {12, 3}, {6, 6},  {16, 4}, {12, 6},
                                            {8, 8}, {24, 6}, {16, 8}, {32, 8}, {48, 8}, {63, 8}}};
  std::vector<FamilyTree> family = {{.name = "nothing", .topology = {}}};
  for (const auto& [nodes, depth] : kSizes) {
    if (depth > limits.num_heads || nodes >= limits.max_nodes) continue;
    const std::string name =
        std::to_string(nodes) + (nodes == 1 ? " node" : " nodes") + " of depth " + std::to_string(depth);
    family.push_back(
        {.name = name, .topology = {}, .grown = {.nodes = nodes, .depth = depth, .width = std::min(kWidth, nodes)}});
  }
  return family;
}

}  // namespace hydrant::tree
