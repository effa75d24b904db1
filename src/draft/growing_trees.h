// SPDX-License-Identifier: Apache-2.0
// Trees while their levels are drafted: which nodes are in, and which of them get children.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"

namespace hydrant::draft {

// Without a min_probability every node of a sequence's shape is in its tree. With a min_probability X a node is in if
// its head gives it at least X and all nodes before it on its path are in. Its children are drafted if the heads
// together give its path at least X: a child of an unlikely node is hardly ever accepted, but costs a row of its head
// and of the base model all the same.
class GrowingTrees {
 public:
  // Plants each input's shape within its budget.
  static void Plant(std::span<ProposeInput> inputs);
  // The inputs and their trees' shapes stay as they are until Finish.
  void Start(std::span<ProposeInput> inputs);
  bool Expands(size_t input, tree::NodeId node) const;
  // Adds the children of a node that expands, from its candidates. `probabilities`: as CandidateRanker gives them; read
  // only where drafts are drawn or there is a min_probability.
  void Fill(size_t input, tree::NodeId node, std::span<const int32_t> candidates, std::span<const float> probabilities);
  // Removes the nodes that are not in from the trees, and sets the scores of the rest.
  void Finish();

 private:
  std::span<ProposeInput> inputs_;
  std::vector<std::vector<float>> paths_;  // [S] of [N]: probability of a node's path, 0: not in; empty without X
  std::vector<uint8_t> kept_;              // scratch
};

}  // namespace hydrant::draft
