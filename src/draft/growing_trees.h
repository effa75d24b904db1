// SPDX-License-Identifier: Apache-2.0
// Trees while their levels are drafted: which nodes are in, and which of them get children.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"

namespace hydrant::draft {

// Where a sequence has a min_probability X, a node is in if its head gives it at least X and all before it on its path
// are in, and its children are drafted if the heads together give its path at least X. (A child of an unlikely node is
// hardly ever accepted, but costs its head's pass and a row of the base model all the same.) Else every node is in.
class GrowingTrees {
 public:
  // Plants each input's shape within its budget.
  static void Plant(std::span<ProposeInput> inputs);
  // The inputs and their trees' shapes stay as they are until Finish.
  void Start(std::span<ProposeInput> inputs);
  bool Expands(size_t input, tree::NodeId node) const;
  // The children of a node that expands, from its candidates. `probabilities` [candidates], not read without X.
  void Fill(size_t input, tree::NodeId node, std::span<const int32_t> candidates, std::span<const float> probabilities);
  // Takes the nodes that are not in out of the trees, and gives the others their scores.
  void Finish();

 private:
  std::span<ProposeInput> inputs_;
  std::vector<std::vector<float>> paths_;  // [S] of [N], or of none without X: the path's probability, 0 = not in
  std::vector<uint8_t> kept_;              // scratch
};

}  // namespace hydrant::draft
