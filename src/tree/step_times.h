// SPDX-License-Identifier: Apache-2.0
// What steps with each tree of a family take on a machine whose speed moves all the time, because others use it too.
// Pure: no clock. The reasoning: docs/algorithms/tree_auto.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::tree {

// A Kalman filter over logarithms of times (R. E. Kalman, 1960). The time of a step is the speed of the moment (the
// time of a step with tree 0) times the cost of its tree (relative to tree 0). The speed changes from step to step,
// while costs hardly change. So steps with one tree in a row show the speed, and a change of trees shows the ratio of
// their costs, as precisely as the speed was known just then. The state's mean holds what is believed, its covariance
// how firmly and which beliefs depend on each other.
class StepTimes {
 public:
  explicit StepTimes(size_t num_trees);

  // Takes the time of a step with `tree`. `believed` is the tree's cost as it was estimated; only its first step reads
  // it.
  void Observe(size_t tree, double milliseconds, double believed);
  // Sets what an earlier run knew, before any Observe: a tree's cost and the standard deviation of its logarithm; for
  // tree 0 the speed, in milliseconds.
  void Recall(size_t tree, double cost_or_speed, double doubt, int64_t count);

  int64_t count(size_t tree) const { return counts_[tree]; }  // number of times taken, those before Recall included
  double Cost(size_t tree) const;                             // over a step with tree 0
  double Milliseconds(size_t tree) const;                     // now
  double Doubt(size_t tree) const { return Doubt(tree, 0); }  // standard deviation of log Cost
  double Doubt(size_t a, size_t b) const;                     // of log (Cost(a) / Cost(b))
  // Whether the last time was far from the expected one just after a change of trees. Another step with the tree before
  // then tells whether the speed has changed or the cost was wrong.
  bool unsettled() const { return unsettled_; }

 private:
  double& covariance(size_t a, size_t b) { return covariance_[a * counts_.size() + b]; }
  double covariance(size_t a, size_t b) const { return covariance_[a * counts_.size() + b]; }
  double NoiseVariance() const;
  void Correct(size_t tree, double surprise, double noise);

  std::vector<double> mean_;        // [trees] logarithm of the speed, then of the costs of trees 1, 2, ..
  std::vector<double> covariance_;  // [trees, trees] of these
  std::vector<int64_t> counts_;     // [trees]
  double deviation_ = 0.05;         // mean absolute surprise, of logarithms
  int64_t surprises_ = 0;           // number of surprises in that mean
  size_t last_tree_ = 0;
  bool unsettled_ = false;
  int32_t odd_ = 0;  // times far from what was expected, in a row
};

}  // namespace hydrant::tree
