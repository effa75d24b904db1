// SPDX-License-Identifier: Apache-2.0
#include "draft/levels/scored_paths.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace hydrant::draft {

void ScoredPaths::Add(int32_t parent, int32_t rank, int32_t token, double log_probability) {
  const ScoredPath above = parent < 0 ? ScoredPath{.depth = 0} : at(parent);
  paths_.push_back({.parent = parent,
                    .rank = rank,
                    .depth = above.depth + 1,
                    .token = token,
                    .score = above.score + log_probability});
}

std::vector<int32_t> ScoredPaths::Best(size_t first, size_t count) const {
  std::vector<int32_t> order(paths_.size() - first);
  std::iota(order.begin(), order.end(), static_cast<int32_t>(first));
  const auto better = [&](int32_t a, int32_t b) {
    return at(a).score != at(b).score ? at(a).score > at(b).score : a < b;
  };
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(count), order.end(), better);
  order.resize(count);
  return order;
}

// Tree order: by depth, then by the parent's place, then by rank.
void ScoredPaths::Plant(std::vector<int32_t> paths, tree::TokenTree& tree) const {
  if (paths.empty()) return;
  std::vector<int32_t> place(paths_.size(), 0);
  std::ranges::sort(paths, {}, [&](int32_t p) { return at(p).depth; });
  std::vector<tree::NodeId> parents = {-1};
  tree.tokens.resize(1);
  tree.scores.assign(1, 1);
  for (auto begin = paths.begin(); begin != paths.end();) {
    const int32_t depth = at(*begin).depth;
    const auto end = std::find_if(begin, paths.end(), [&](int32_t p) { return at(p).depth != depth; });
    const auto key = [&](int32_t p) {
      return std::pair(at(p).parent < 0 ? 0 : place[static_cast<size_t>(at(p).parent)], at(p).rank);
    };
    std::sort(begin, end, [&](int32_t a, int32_t b) { return key(a) < key(b); });
    for (; begin != end; ++begin) {
      place[static_cast<size_t>(*begin)] = static_cast<int32_t>(parents.size());
      parents.push_back(key(*begin).first);
      tree.tokens.push_back(at(*begin).token);
      tree.scores.push_back(static_cast<float>(std::exp(at(*begin).score)));
    }
  }
  tree.topology = tree::Topology::FromParents(parents);
  tree.source = DraftSource::kHeads;
}

}  // namespace hydrant::draft
