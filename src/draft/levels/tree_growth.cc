// SPDX-License-Identifier: Apache-2.0
#include "draft/levels/tree_growth.h"

#include <algorithm>
#include <cmath>
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
  candidates_.Clear();
  level_.clear();
  input.tree->Reset(input.output.back());
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
  const std::vector<int32_t> above = std::exchange(level_, candidates_.Best(level_begin_, static_cast<size_t>(width)));
  level_begin_ = candidates_.size();
  for (const int32_t c : level_) {
    const ScoredPath& candidate = candidates_.at(c);
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
  for (size_t i = 0; i < candidates.size(); ++i) {
    // The negation catches NaN. Those that follow are no likelier.
    if (!(probabilities[i] > 0 && probabilities[i] >= input_->min_probability)) break;
    candidates_.Add(parent, static_cast<int32_t>(i), candidates[i], std::log(static_cast<double>(probabilities[i])));
  }
}

// A parent scores no less than its children and comes before them, so it is kept with them, and so are the siblings
// before a node.
void DynamicGrowth::Finish() {
  const int32_t most = std::min(input_->dynamic->nodes, input_->budget.max_nodes);
  candidates_.Plant(candidates_.Best(0, static_cast<size_t>(std::max(0, most))), *input_->tree);
}

}  // namespace hydrant::draft
