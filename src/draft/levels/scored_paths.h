// SPDX-License-Identifier: Apache-2.0
// Drafted paths and how likely their drafter holds them: what growing trees choose from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tree/token_tree.h"

namespace hydrant::draft {

// A path is its last node; nodes are numbered as they were added.
struct ScoredPath {
  int32_t parent = -1;  // -1: the root
  int32_t rank = 0;     // among the parent's candidates
  int32_t depth = 1;
  int32_t token = 0;
  double score = 0;  // sum of the log probabilities on the path
};

class ScoredPaths {
 public:
  void Clear() { paths_.clear(); }
  // One step on from `parent`, which may be -1.
  void Add(int32_t parent, int32_t rank, int32_t token, double log_probability);
  size_t size() const { return paths_.size(); }
  const ScoredPath& at(int32_t path) const { return paths_[static_cast<size_t>(path)]; }
  // The `count` best of the paths from `first` on, best first. Ties: the earlier one.
  std::vector<int32_t> Best(size_t first, size_t count) const;
  // Makes `tree`, which is the root alone, the tree of these paths: with a path its parent's is among them.
  void Plant(std::vector<int32_t> paths, tree::TokenTree& tree) const;

 private:
  std::vector<ScoredPath> paths_;
};

}  // namespace hydrant::draft
