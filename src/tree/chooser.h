// SPDX-License-Identifier: Apache-2.0
// Which tree the next step drafts, from what the steps so far took and gave. Pure: no clock, no model, no file.
// The reasoning: docs/algorithms/tree_auto.md
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/json_fwd.h"
#include "tree/family.h"
#include "tree/step_times.h"
#include "tree/yields.h"

namespace hydrant::tree {

// One step of several sequences that all drafted the tree that Next() named.
struct StepOutcome {
  double milliseconds = 0;                             // of the whole step
  std::span<const std::vector<VisitedNode>> walks;     // of each sequence, from the root; one at least
  std::span<const std::vector<GrownNode>> grown = {};  // of each sequence, where trees grow: the nodes, best first
};

// What is expected of one tree of the family.
struct TreeEstimate {
  int32_t tree = 0;          // index in the family
  int64_t steps = 0;         // taken with it, by this chooser
  double milliseconds = 0;   // of a step, at the speed of the last ones
  double relative_cost = 1;  // over a plain step
  double tokens_per_step = 1;
};

class TreeChooser {
 public:
  // `family`: the root alone first (family.h), then trees in shapes, or trees that grow. Must outlive this.
  explicit TreeChooser(std::span<const FamilyTree> family);

  // The tree of the next step; 0 = nothing is drafted. The same until Observe.
  int32_t Next() const { return next_; }
  // What came of it.
  void Observe(const StepOutcome& outcome);

  // The tree that is held to be fastest.
  int32_t Best() const;
  // Estimates of the trees that were measured, now or before Learn, in the order of the family.
  std::vector<TreeEstimate> Estimates() const;
  TreeEstimate EstimateOf(int32_t tree) const;

  // What was seen so far, to be given to a later chooser whose family has some of the same trees.
  base::Json Learned() const;
  // Goes on from what Learned gave, before any Observe. Trees that this family lacks are passed over. Throws FileError,
  // and changes nothing, where the view is something else.
  void Learn(const base::JsonView& learned);

  static constexpr int32_t kMostLosses = 8;   // losing steps in a row that end drafting
  static constexpr int64_t kFirstPause = 32;  // plain steps until drafting is tried again; later twice as many
  static constexpr int64_t kLongestPause = 4096;

 private:
  // When a tree is measured again, if it is not the best.
  struct Look {
    int64_t steps = 0;  // taken with the tree, by this chooser
    int64_t gap = 32;   // steps until then
    int64_t next = 0;   // when that is
  };
  using Yields = std::variant<ShapeYields, GrownYields>;

  static Yields YieldsOf(std::span<const FamilyTree> family);
  double TakeOutcome(const StepOutcome& outcome);
  void UpdateYields();
  bool IsMeasured(int32_t tree) const { return times_.count(static_cast<size_t>(tree)) > 0; }
  double BelievedExcess(int32_t tree) const;
  double CostOf(int32_t tree) const;
  double RateOf(int32_t tree) const;
  bool MayTry(int32_t tree) const;
  int32_t BestOf(int32_t first) const;
  int32_t RivalOf(int32_t best) const;
  void Pause();
  void Choose();

  std::span<const FamilyTree> family_;
  StepTimes times_;          // [family]
  std::vector<Look> looks_;  // [family]
  Yields seen_;
  std::vector<double> yields_;  // [family] tokens per step
  int64_t plain_in_a_row_ = 0;
  bool learned_ = false;
  bool checking_ = false;  // does the next step repeat the tree before an odd time?
  int32_t last_tree_ = 0;  // of the last step whose time counted
  int64_t step_ = 0, drafting_steps_ = 0, steps_since_pause_ = 0;
  int32_t losses_ = 0;  // losing steps in a row
  int64_t pause_ = kFirstPause, paused_until_ = -1;
  int32_t probe_left_ = 0;  // drafting steps until a probe is judged
  int32_t next_ = 0;
  bool looking_ = false;  // is next_ measured again though another tree is held to be faster?
};

}  // namespace hydrant::tree
