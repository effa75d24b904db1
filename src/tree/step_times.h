// SPDX-License-Identifier: Apache-2.0
// What steps with each tree of a family take on a machine whose speed moves all the time, because others use it too.
// Pure: no clock. The reasoning: docs/algorithms/tree_auto.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::tree {

// A Kalman filter over logarithms of times (R. E. Kalman, 1960). The time of a step is the speed of the moment (what a
// step with tree 0 takes) times the cost of its tree (over tree 0). The speed moves from step to step, costs hardly do:
// so steps with one tree in a row tell the speed, and a change of trees tells their costs, as far as the speed was
// known just then. What is believed and how firmly, and what hangs on what, is the state's mean and covariance.
class StepTimes {
 public:
  explicit StepTimes(size_t num_trees);

  // A step with `tree` took so long. `believed`: its cost, for its first one.
  void Observe(size_t tree, double milliseconds, double believed);
  // What was known of a tree before any Observe: its cost, and by how much its logarithm is in doubt (standard
  // deviation). Of tree 0: the speed, in milliseconds.
  void Recall(size_t tree, double cost_or_speed, double doubt, int64_t count);

  int64_t count(size_t tree) const { return counts_[tree]; }  // of times, those before Recall included
  double Cost(size_t tree) const;                             // over a step with tree 0
  double Milliseconds(size_t tree) const;                     // now
  double Doubt(size_t tree) const { return Doubt(tree, 0); }  // standard deviation of log Cost
  double Doubt(size_t a, size_t b) const;                     // of log (Cost(a) / Cost(b))
  // Was the last time far from what was expected, of another tree than the one before? A step with that one then tells
  // whether the speed has changed or the cost was not known.
  bool unsettled() const { return unsettled_; }

 private:
  double& covariance(size_t a, size_t b) { return covariance_[a * counts_.size() + b]; }
  double covariance(size_t a, size_t b) const { return covariance_[a * counts_.size() + b]; }
  double NoiseVariance() const;
  void Correct(size_t tree, double surprise, double noise);

  std::vector<double> mean_;        // [trees] logarithm of the cost; first that of the speed
  std::vector<double> covariance_;  // [trees, trees] of these
  std::vector<int64_t> counts_;     // [trees]
  double deviation_ = 0.05;         // mean absolute surprise, of logarithms
  int64_t surprises_ = 0;           // that it is the mean of
  size_t last_tree_ = 0;
  bool unsettled_ = false;
  int32_t odd_ = 0;  // times far from what was expected, in a row
};

}  // namespace hydrant::tree
