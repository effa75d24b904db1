// SPDX-License-Identifier: Apache-2.0
// Trees of beams, as ReDrafter searches them (docs/algorithms/redrafter.md). Pure: no model, no noise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/levels/scored_paths.h"
#include "draft/levels/tree_growth.h"

namespace hydrant::draft {

// ProposeInput::beam. A beam's score is the sum of the log probabilities on its path. Each level goes on from the
// `width` best beams, and the best of all that come of them are the next ones; in the end the tree is what the beams
// are made of. Ties: the earlier candidate.
class BeamGrowth : public TreeGrowth {
 public:
  // `num_best`: LevelModel::num_best. `input` must stay as it is until Finish.
  void Start(ProposeInput& input, int32_t num_best);
  std::span<const Expansion> Level(int32_t depth) override;
  void Fill(int32_t expansion, std::span<const int32_t> candidates, std::span<const float> probabilities) override;
  void Finish() override;
  bool WantsProbabilities() const override { return true; }

 private:
  size_t width() const { return static_cast<size_t>(input_->beam->width); }

  ProposeInput* input_ = nullptr;
  int32_t num_best_ = 0;
  int32_t num_levels_ = 0;
  ScoredPaths paths_;           // by level, then by the parent's place in its level, then by rank
  std::vector<int32_t> level_;  // beams that the level in hand goes on from, best first
  std::vector<int32_t> ended_;  // beams that nothing likely enough goes on from
  size_t level_begin_ = 0;      // in paths_, of what goes on from level_
  std::vector<Expansion> expansions_;
};

}  // namespace hydrant::draft
