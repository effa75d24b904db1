// SPDX-License-Identifier: Apache-2.0
#include "draft/levels/beam_growth.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace hydrant::draft {
namespace {

// Tokens with the probability of the last of the num_best stay as well (modeling_drafter.py: warp_logits). So many of
// them are looked for.
constexpr int32_t kMostTies = 14;

// How many of the candidates, best first, are left.
size_t NumLeft(std::span<const float> probabilities, int32_t num_best) {
  auto left = static_cast<size_t>(num_best);
  if (left >= probabilities.size()) return probabilities.size();
  while (left < probabilities.size() && probabilities[left] == probabilities[static_cast<size_t>(num_best - 1)]) ++left;
  return left;
}

}  // namespace

void BeamGrowth::Start(ProposeInput& input, int32_t num_best) {
  HYDRANT_CHECK(input.beam != nullptr);
  input_ = &input;
  num_best_ = num_best;
  num_levels_ = std::min({LevelsOf(*input.beam), input.budget.max_depth, input.budget.max_nodes});
  paths_.Clear();
  level_.clear();
  ended_.clear();
  level_begin_ = 0;
  input.tree->Reset(input.output.back());
}

std::span<const Expansion> BeamGrowth::Level(int32_t depth) {
  expansions_.clear();
  if (depth >= num_levels_) return {};
  const int32_t wanted = num_best_ > 0 ? num_best_ + kMostTies : input_->beam->width;
  if (depth == 0) {
    expansions_.push_back({.parent = -1, .token = input_->output.back(), .num_candidates = wanted});
    return expansions_;
  }
  // Parents are known by their numbers in the level above, which is level_ until now.
  const std::vector<int32_t> above = std::exchange(level_, paths_.Best(level_begin_, width()));
  level_begin_ = paths_.size();
  // A path that its drafter holds for unlikely is not followed further, and those after it are no likelier.
  const double least = input_->min_probability > 0 ? std::log(static_cast<double>(input_->min_probability)) : -HUGE_VAL;
  const auto unlikely = std::ranges::find_if(level_, [&](int32_t beam) { return paths_.at(beam).score < least; });
  ended_.insert(ended_.end(), unlikely, level_.end());
  level_.erase(unlikely, level_.end());
  for (const int32_t beam : level_) {
    const auto parent = std::ranges::find(above, paths_.at(beam).parent);
    expansions_.push_back({.parent = depth == 1 ? 0 : static_cast<int32_t>(parent - above.begin()),
                           .token = paths_.at(beam).token,
                           .num_candidates = wanted});
  }
  return expansions_;
}

void BeamGrowth::Fill(int32_t expansion, std::span<const int32_t> candidates, std::span<const float> probabilities) {
  HYDRANT_CHECK(probabilities.size() >= candidates.size());
  const int32_t parent = level_.empty() ? -1 : level_[static_cast<size_t>(expansion)];
  size_t left = candidates.size();
  double sum = 1;
  if (num_best_ > 0) {
    left = NumLeft(probabilities.first(left), num_best_);
    sum = std::accumulate(probabilities.begin(), probabilities.begin() + static_cast<int64_t>(left), 0.0);
  }
  const size_t before = paths_.size();
  for (size_t i = 0; i < std::min(left, width()); ++i) {
    const double probability = static_cast<double>(probabilities[i]) / sum;
    // The negation catches NaN. Those that follow are no likelier.
    if (!(probability > 0 && probability >= static_cast<double>(input_->min_probability))) break;
    paths_.Add(parent, static_cast<int32_t>(i), candidates[i], std::log(probability));
  }
  if (parent >= 0 && paths_.size() == before) ended_.push_back(parent);
}

void BeamGrowth::Finish() {
  std::vector<int32_t> beams = paths_.Best(level_begin_, width());
  beams.insert(beams.end(), ended_.begin(), ended_.end());
  // Where the budget is less than all beams need, the best ones are in.
  const auto most = static_cast<size_t>(std::max(0, input_->budget.max_nodes));
  std::vector<bool> is_kept(paths_.size(), false);
  std::vector<int32_t> kept, suffix;
  for (const int32_t beam : beams) {
    suffix.clear();
    for (int32_t path = beam; path >= 0 && !is_kept[static_cast<size_t>(path)]; path = paths_.at(path).parent) {
      suffix.push_back(path);
    }
    for (; !suffix.empty() && kept.size() < most; suffix.pop_back()) {
      kept.push_back(suffix.back());
      is_kept[static_cast<size_t>(suffix.back())] = true;
    }
  }
  paths_.Plant(std::move(kept), *input_->tree);
}

}  // namespace hydrant::draft
