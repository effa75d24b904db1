// SPDX-License-Identifier: Apache-2.0
// How one sequence's tree comes to be while its levels are drafted: in a given shape, or by what the drafts say. Pure:
// no model, no noise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "draft/growing_trees.h"
#include "draft/levels/scored_paths.h"

namespace hydrant::draft {

// A node whose children are to be drafted.
struct Expansion {
  int32_t parent = -1;  // its parent's number in the level above; -1: it is the root
  int32_t token = 0;
  int32_t num_candidates = 0;  // best tokens wanted
};

// One tree. Level(0) is the root alone; Fill answers every expansion of a level, in order, before the next Level.
class TreeGrowth {
 public:
  virtual ~TreeGrowth() = default;
  // Expansions of that depth. None: nothing more is drafted. Valid until the next call.
  virtual std::span<const Expansion> Level(int32_t depth) = 0;
  // Best first. `probabilities`: of each candidate; may be empty where WantsProbabilities is false.
  virtual void Fill(int32_t expansion, std::span<const int32_t> candidates, std::span<const float> probabilities) = 0;
  // Gives the tree to ProposeInput::tree.
  virtual void Finish() = 0;
  virtual bool WantsProbabilities() const = 0;
};

// ProposeInput::shape.
class ShapeGrowth : public TreeGrowth {
 public:
  // `input` must stay as it is until Finish.
  void Start(ProposeInput& input);
  std::span<const Expansion> Level(int32_t depth) override;
  void Fill(int32_t expansion, std::span<const int32_t> candidates, std::span<const float> probabilities) override;
  void Finish() override { trees_.Finish(); }
  bool WantsProbabilities() const override { return input_->min_probability > 0; }

 private:
  ProposeInput* input_ = nullptr;
  GrowingTrees trees_;
  std::vector<tree::NodeId> nodes_;  // [expansions of the level]
  std::vector<int32_t> number_;      // [nodes] in its level's expansions
  std::vector<Expansion> expansions_;
};

// ProposeInput::dynamic. EAGLE-2 (Li et al., 2024, section 4; eagle/model/cnets.py: topK_genrate): a node's score is
// the sum of the log probabilities on its path. Each level expands the `width` best nodes of the level before; in the
// end the `nodes` best of all candidates are the tree, whether they were expanded or not. Ties: the earlier candidate.
class DynamicGrowth : public TreeGrowth {
 public:
  void Start(ProposeInput& input);
  std::span<const Expansion> Level(int32_t depth) override;
  void Fill(int32_t expansion, std::span<const int32_t> candidates, std::span<const float> probabilities) override;
  void Finish() override;
  bool WantsProbabilities() const override { return true; }

 private:
  ProposeInput* input_ = nullptr;
  int32_t num_levels_ = 0;
  ScoredPaths candidates_;      // by level, then by the parent's place in its level, then by rank
  std::vector<int32_t> level_;  // candidates that the level in hand expands, best first
  size_t level_begin_ = 0;      // of the candidates of the level in hand's children
  std::vector<Expansion> expansions_;
};

}  // namespace hydrant::draft
