// SPDX-License-Identifier: Apache-2.0
#include "tree/draw.h"

#include <algorithm>

namespace hydrant::tree {
namespace {

std::string Cell(int32_t number) {
  const std::string text = std::to_string(number);
  return std::string(text.size() < 6 ? 6 - text.size() : 1, ' ') + text;
}

std::string Counted(int32_t number, const std::string& singular, const std::string& plural) {
  return std::to_string(number) + " " + (number == 1 ? singular : plural);
}

// Recursion is as deep as the tree: at most Topology::kMaxDepth.
void DrawChildren(const Topology& topology, NodeId node, const std::string& indent, std::string& text) {
  const auto counts = topology.num_children();
  const NodeId begin = topology.first_child()[static_cast<size_t>(node)];
  const NodeId end = begin + counts[static_cast<size_t>(node)];
  for (NodeId child = begin; child < end;) {
    NodeId last = child;  // of a run of leaves
    if (counts[static_cast<size_t>(child)] == 0) {
      while (last + 1 < end && counts[static_cast<size_t>(last + 1)] == 0) ++last;
    }
    const bool is_final = last + 1 == end;
    text += indent + (is_final ? "└─ " : "├─ ") + std::to_string(child - begin);
    if (last > child) text += ".." + std::to_string(last - begin);
    text += '\n';
    if (counts[static_cast<size_t>(child)] > 0) {
      DrawChildren(topology, child, indent + (is_final ? "   " : "│  "), text);
    }
    child = last + 1;
  }
}

}  // namespace

std::string Draw(const Topology& topology) {
  int32_t widest = 0;
  std::string depths = "depth       ", nodes = "nodes       ", children = "max children";
  for (int32_t d = 0; d <= topology.max_depth(); ++d) {
    depths += Cell(d);
    nodes += Cell(topology.width_at(d));
    children += Cell(topology.max_children_at(d));
    widest = std::max(widest, topology.max_children_at(d));
  }
  const int32_t leaves = topology.num_nodes() == 1 ? 0 : topology.num_leaves();
  std::string text = Counted(topology.num_nodes() - 1, "drafted node", "drafted nodes") + " and the root, depth " +
                     std::to_string(topology.max_depth()) + ", " + Counted(leaves, "leaf", "leaves") + ", at most " +
                     Counted(widest, "child", "children") + " per node\n";
  text += depths + '\n' + nodes + '\n' + children + "\nroot\n";
  DrawChildren(topology, 0, "", text);
  return text;
}

}  // namespace hydrant::tree
