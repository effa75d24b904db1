// SPDX-License-Identifier: Apache-2.0
// A tree whose shape is known before its tokens are: what Medusa and Hydra heads fill.
#pragma once

#include <cstdint>
#include <vector>

#include "tree/token_tree.h"
#include "tree/topology.h"

namespace hydrant::draft {

// How large a sequence's next tree may be.
struct Budget {
  int32_t max_nodes = 0;  // drafted ones, the root not counted
  int32_t max_depth = 0;
  int32_t max_slots = 0;  // of keys and values behind the committed positions, while it is drafted
};

class StaticTree {
 public:
  explicit StaticTree(tree::Topology whole);

  const tree::Topology& whole() const { return whole_; }
  bool FitsIn(const Budget& budget) const {
    return whole_.max_depth() <= budget.max_depth && whole_.num_nodes() - 1 <= budget.max_nodes;
  }
  // The tree cut to the budget's depth, and then to as many first nodes as the budget has. Valid until the next call.
  const tree::Topology& Within(const Budget& budget);
  // Makes `tree` that shape, with the root's token and no others yet.
  void Plant(const Budget& budget, int32_t root, tree::TokenTree& tree);

 private:
  tree::Topology whole_;
  std::vector<tree::Topology> by_depth_;  // cut to depth d, made when first needed
  tree::Topology cut_;                    // of the last call, where nodes were left out
};

// A chain of any length: what a lookup or a draft model proposes. Valid until the next call.
class Chains {
 public:
  const tree::Topology& Of(int32_t nodes);

 private:
  std::vector<tree::Topology> by_length_;  // of i nodes below the root, made when first needed
};

}  // namespace hydrant::draft
