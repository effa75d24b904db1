// SPDX-License-Identifier: Apache-2.0
#include "draft/static_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hydrant::draft {

StaticTree::StaticTree(tree::Topology whole) : whole_(std::move(whole)) {
  by_depth_.resize(static_cast<size_t>(whole_.max_depth()) + 1);
}

const tree::Topology& StaticTree::Within(const Budget& budget) {
  HYDRANT_CHECK(budget.max_nodes >= 0 && budget.max_depth >= 0);
  const tree::Topology* tree = &whole_;
  if (budget.max_depth < whole_.max_depth()) {
    tree::Topology& cut = by_depth_[static_cast<size_t>(budget.max_depth)];
    if (cut.max_depth() != budget.max_depth) cut = whole_.CutToDepth(budget.max_depth);
    tree = &cut;
  }
  if (tree->num_nodes() - 1 <= budget.max_nodes) return *tree;
  return cut_ = tree->Truncate(budget.max_nodes + 1);
}

void StaticTree::Plant(const Budget& budget, int32_t root, tree::TokenTree& tree) {
  const tree::Topology& shape = Within(budget);
  // Copying a topology costs a few allocations, and most steps draft the shape of the step before.
  if (!(tree.topology == shape)) tree.topology = shape;
  tree.tokens.assign(static_cast<size_t>(shape.num_nodes()), 0);
  tree.tokens[0] = root;
  tree.scores.clear();
  tree.source = shape.num_nodes() > 1 ? DraftSource::kHeads : DraftSource::kBase;
}

const tree::Topology& Chains::Of(int32_t nodes) {
  HYDRANT_CHECK(nodes >= 0);
  const auto n = static_cast<size_t>(nodes);
  if (by_length_.size() <= n) by_length_.resize(n + 1);
  if (by_length_[n].num_nodes() != nodes + 1) {
    by_length_[n] = tree::Topology::FromPaths(std::vector<std::vector<int32_t>>(1, std::vector<int32_t>(n, 0)));
  }
  return by_length_[n];
}

}  // namespace hydrant::draft
