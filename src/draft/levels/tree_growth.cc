// SPDX-License-Identifier: Apache-2.0
#include "draft/levels/tree_growth.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace hydrant::draft {

void ShapeGrowth::Start(ProposeInput& input) {
  input_ = &input;
  GrowingTrees::Plant(std::span(&input, 1));
  trees_.Start(std::span(&input, 1));
  number_.assign(static_cast<size_t>(input.tree->topology.num_nodes()), -1);
}

std::span<const Expansion> ShapeGrowth::Level(int32_t depth) {
  const tree::Topology& topology = input_->tree->topology;
  nodes_.clear();
  expansions_.clear();
  if (depth >= topology.max_depth()) return {};
  for (tree::NodeId node = topology.level_begin(depth); node < topology.level_begin(depth + 1); ++node) {
    const auto n = static_cast<size_t>(node);
    if (topology.num_children()[n] == 0 || !trees_.Expands(0, node)) continue;
    number_[n] = static_cast<int32_t>(nodes_.size());
    nodes_.push_back(node);
    expansions_.push_back({.parent = depth == 0 ? -1 : number_[static_cast<size_t>(topology.parent()[n])],
                           .token = input_->tree->tokens[n],
                           .num_candidates = topology.num_children()[n]});
  }
  return expansions_;
}

void ShapeGrowth::Fill(int32_t expansion, std::span<const int32_t> candidates, std::span<const float> probabilities) {
  trees_.Fill(0, nodes_[static_cast<size_t>(expansion)], candidates, probabilities);
}

void DynamicGrowth::Start(ProposeInput& input) {
  HYDRANT_CHECK(input.dynamic != nullptr);
  input_ = &input;
  num_levels_ = input.budget.max_nodes > 0 ? std::min(input.dynamic->depth, input.budget.max_depth) : 0;
  candidates_.clear();
  level_.clear();
  input.tree->Reset(input.output.back());
}

// The `count` best candidates from `first` on, best first.
std::vector<int32_t> DynamicGrowth::Best(size_t first, size_t count) const {
  std::vector<int32_t> order(candidates_.size() - first);
  std::iota(order.begin(), order.end(), static_cast<int32_t>(first));
  const auto better = [&](int32_t a, int32_t b) {
    const double x = candidates_[static_cast<size_t>(a)].score, y = candidates_[static_cast<size_t>(b)].score;
    return x != y ? x > y : a < b;
  };
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(count), order.end(), better);
  order.resize(count);
  return order;
}

std::span<const Expansion> DynamicGrowth::Level(int32_t depth) {
  expansions_.clear();
  if (depth >= num_levels_) return {};
  const int32_t width = input_->dynamic->width;
  if (depth == 0) {
    level_begin_ = 0;
    expansions_.push_back({.parent = -1, .token = input_->output.back(), .num_candidates = width});
    return expansions_;
  }
  // Parents are known by their numbers in the level above, which is level_ until now.
  const std::vector<int32_t> above = std::exchange(level_, Best(level_begin_, static_cast<size_t>(width)));
  level_begin_ = candidates_.size();
  for (const int32_t c : level_) {
    const Candidate& candidate = candidates_[static_cast<size_t>(c)];
    // A path that its drafter holds for unlikely is not followed further.
    if (input_->min_probability > 0 && std::exp(candidate.score) < static_cast<double>(input_->min_probability)) break;
    const auto parent = std::ranges::find(above, candidate.parent);
    expansions_.push_back({.parent = depth == 1 ? 0 : static_cast<int32_t>(parent - above.begin()),
                           .token = candidate.token,
                           .num_candidates = width});
  }
  level_.resize(expansions_.size());
  return expansions_;
}

void DynamicGrowth::Fill(int32_t expansion, std::span<const int32_t> candidates, std::span<const float> probabilities) {
  HYDRANT_CHECK(probabilities.size() >= candidates.size());
  const int32_t parent = level_.empty() ? -1 : level_[static_cast<size_t>(expansion)];
  const Candidate above = parent < 0 ? Candidate{.depth = 0} : candidates_[static_cast<size_t>(parent)];
  for (size_t i = 0; i < candidates.size(); ++i) {
    // The negation catches NaN. Those that follow are no likelier.
    if (!(probabilities[i] > 0 && probabilities[i] >= input_->min_probability)) break;
    candidates_.push_back({.parent = parent,
                           .rank = static_cast<int32_t>(i),
                           .depth = above.depth + 1,
                           .token = candidates[i],
                           .score = above.score + std::log(static_cast<double>(probabilities[i]))});
  }
}

void DynamicGrowth::Finish() {
  const int32_t most = std::min(input_->dynamic->nodes, input_->budget.max_nodes);
  std::vector<int32_t> kept = Best(0, static_cast<size_t>(std::max(0, most)));
  if (kept.empty()) return;
  // Tree order: by depth, then by the parent's place, then by rank. A parent scores no less than its children and comes
  // before them, so it is kept with them, and so are the siblings before a node.
  std::vector<int32_t> place(candidates_.size(), 0);
  std::ranges::sort(kept, {}, [&](int32_t c) { return candidates_[static_cast<size_t>(c)].depth; });
  std::vector<tree::NodeId> parents = {-1};
  tree::TokenTree& tree = *input_->tree;
  tree.tokens.resize(1);
  tree.scores.assign(1, 1);
  for (auto begin = kept.begin(); begin != kept.end();) {
    const int32_t depth = candidates_[static_cast<size_t>(*begin)].depth;
    const auto end =
        std::find_if(begin, kept.end(), [&](int32_t c) { return candidates_[static_cast<size_t>(c)].depth != depth; });
    const auto key = [&](int32_t c) {
      const Candidate& candidate = candidates_[static_cast<size_t>(c)];
      return std::pair(candidate.parent < 0 ? 0 : place[static_cast<size_t>(candidate.parent)], candidate.rank);
    };
    std::sort(begin, end, [&](int32_t a, int32_t b) { return key(a) < key(b); });
    for (; begin != end; ++begin) {
      const Candidate& candidate = candidates_[static_cast<size_t>(*begin)];
      place[static_cast<size_t>(*begin)] = static_cast<int32_t>(parents.size());
      parents.push_back(key(*begin).first);
      tree.tokens.push_back(candidate.token);
      tree.scores.push_back(static_cast<float>(std::exp(candidate.score)));
    }
  }
  tree.topology = tree::Topology::FromParents(parents);
  tree.source = DraftSource::kHeads;
}

}  // namespace hydrant::draft
