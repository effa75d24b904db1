// SPDX-License-Identifier: Apache-2.0
// How many tokens a step with each tree of a family gives, by what was seen: of trees whose shape is given, and of
// those that grow from what the drafts say. docs/algorithms/tree_auto.md
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/json_fwd.h"
#include "tree/family.h"
#include "tree/topology.h"

namespace hydrant::tree {

// A node that the verifier's walk came to: the root, and each accepted node.
struct VisitedNode {
  int32_t num_children = 0;  // in the tree that was verified
  int32_t accepted = -1;     // the accepted child's rank; -1: none, the walk ends here
};

// Of trees in a given shape: the chance of each node of any of them.
class ShapeYields {
 public:
  void Add(const Topology& topology);  // the next tree of the family
  void Take(std::span<const VisitedNode> walk);
  void Decay(double factor);
  void Forget(double steps);  // what was seen so far weighs no more than so many steps
  // Tokens per step of each tree.
  std::vector<double> Tokens() const;

  base::Json Learned() const;
  // Throws FileError.
  void Learn(const base::JsonView& nodes);

 private:
  struct Node {
    int32_t parent = -1;
    int32_t rank = 0;
    std::vector<int32_t> children;     // by rank
    double offered = 0, accepted = 0;  // decayed; offered: the walk reached the parent and took no earlier sibling
  };

  std::vector<int32_t> PathOf(int32_t node) const;
  int32_t NodeAt(std::span<const int64_t> path) const;

  std::vector<Node> forest_ = std::vector<Node>(1);  // the root first, parents before children
  std::vector<std::vector<int32_t>> nodes_;          // [family] of [drafted nodes]: each one's index in forest_
};

// A node of a grown tree.
struct GrownNode {
  int32_t depth = 1;
  bool accepted = false;
};

// Of trees that grow: the chance of the r-th best node. The n best nodes of at most d levels are the same whatever more
// a tree has, so a tree teaches for all smaller and shallower ones. What is not seen yet is believed to be as if the
// candidates of every node had the chances that those of all nodes have in the mean.
class GrownYields {
 public:
  static constexpr size_t kRanks = 10;

  void Add(const DynamicTreeOptions& size);  // the next tree of the family
  // `nodes`: the drafted ones, best first; `size`: as asked for.
  void Take(std::span<const VisitedNode> walk, std::span<const GrownNode> nodes, const DynamicTreeOptions& size);
  void Decay(double factor);
  void Forget(double steps);
  std::vector<double> Tokens() const;

  base::Json Learned() const;
  void Learn(const base::JsonView& nodes);  // throws FileError

 private:
  struct Seen {
    double offered = 0, accepted = 0;  // decayed
  };
  using Ranks = std::vector<Seen>;

  std::vector<double> Believed(int32_t depth, size_t count) const;

  std::vector<DynamicTreeOptions> sizes_;  // [family]
  std::map<int32_t, Ranks> by_depth_;      // of the family's depths: [nodes of the largest tree of that depth]
  std::array<Seen, kRanks> candidates_;    // of all nodes; offered: the walk came to the node and took none before
};

}  // namespace hydrant::tree
