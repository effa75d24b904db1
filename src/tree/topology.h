// SPDX-License-Identifier: Apache-2.0
// Shape of a token tree: who is whose child. No tokens, no tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hydrant::tree {

using NodeId = int32_t;

// Nodes are numbered by depth, then by path (the order of the published trees sorted by length and value). So a parent
// precedes its children, siblings are adjacent, every level is a contiguous range, and every prefix [0, n) is a tree.
// Node 0 is the root: the last token already decided, never a draft.
class Topology {
 public:
  // Only the root.
  Topology();

  // From child-rank paths as published with Medusa and Hydra: {{0}, {0, 0}, {1}}, in any order.
  // "Paths only" when no listed path is a prefix of another: prefixes are implied. Otherwise strict: every prefix must
  // be listed. No paths give the root alone. Throws UserError (prefixed by `where`, such as a file or flag) that quotes
  // the first path at fault: missing prefix, duplicate, empty path, ranks of siblings not contiguous from 0, negative
  // rank, depth above kMaxDepth, more than kMaxNodes nodes.
  static Topology FromPaths(std::span<const std::vector<int32_t>> paths, const std::string& where = "tree");

  // From the parent of each node [N], parents[0] == -1: ascending, so that nodes stand as above, and the children of a
  // node have the ranks 0, 1, ...
  static Topology FromParents(std::span<const NodeId> parents);

  static constexpr int32_t kMaxDepth = 64;
  static constexpr int32_t kMaxNodes = 4096;  // root included

  int32_t num_nodes() const { return static_cast<int32_t>(parent_.size()); }  // N, root included
  int32_t max_depth() const { return static_cast<int32_t>(level_begin_.size()) - 2; }
  std::span<const NodeId> parent() const { return parent_; }  // [N], parent[0] == -1
  std::span<const int32_t> depth() const { return depth_; }   // [N], depth[0] == 0
  std::span<const int32_t> child_rank() const {
    return child_rank_;
  }  // [N], rank among the parent's top-k; 0 for the root
  std::span<const NodeId> first_child() const { return first_child_; }     // [N], -1 for a leaf
  std::span<const int32_t> num_children() const { return num_children_; }  // [N]
  // Nodes of depth d are [level_begin(d), level_begin(d + 1)), d = 0..max_depth.
  NodeId level_begin(int32_t d) const { return level_begin_[static_cast<size_t>(d)]; }
  int32_t width_at(int32_t d) const { return level_begin(d + 1) - level_begin(d); }
  // Largest number of children of any node of depth d (0 where d is the deepest level).
  int32_t max_children_at(int32_t d) const;
  int32_t num_leaves() const;

  // Node ids from the root (included) to `node`, in order.
  std::vector<NodeId> PathTo(NodeId node) const;
  // Each node's number in preorder [N]: a node, the subtree of its first child, that of its second, and so on. The KV
  // slots of a tree go by it, so that the chain of first children, which is accepted most often, lies where it would be
  // committed.
  std::vector<int32_t> Preorder() const;
  // The child-rank path of every node but the root, in node order.
  std::vector<std::vector<int32_t>> Paths() const;

  // The tree without the nodes deeper than d; the tree of the first n nodes.
  Topology CutToDepth(int32_t d) const;
  Topology Truncate(int32_t n) const;
  // The tree of the nodes with kept[node], [N]. The root must be kept, and with each node its parent and the siblings
  // before it.
  Topology Keep(std::span<const uint8_t> kept) const;

  bool operator==(const Topology&) const = default;

 private:
  void Append(NodeId parent, int32_t rank);

  std::vector<NodeId> parent_;
  std::vector<int32_t> depth_, child_rank_;
  std::vector<NodeId> first_child_;
  std::vector<int32_t> num_children_;
  std::vector<NodeId> level_begin_;  // [max_depth + 2]
};

// "[0,1,0]", cut after 16 ranks: how a path is quoted in errors.
std::string PathString(std::span<const int32_t> path);

// What a draft and a run allow.
struct Limits {
  int32_t num_heads = Topology::kMaxDepth;   // levels the drafter can fill
  int32_t vocab_size = Topology::kMaxNodes;  // children a node can have
  int32_t max_nodes = Topology::kMaxNodes;   // row budget, root included
};

// Throws UserError ("where: path [0,0,0] is 3 deep, but the draft has 2 heads") when the tree does not fit.
void CheckFits(const Topology& topology, const Limits& limits, const std::string& where);

}  // namespace hydrant::tree
