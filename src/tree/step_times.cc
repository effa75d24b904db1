// SPDX-License-Identifier: Apache-2.0
#include "tree/step_times.h"

#include <algorithm>
#include <cmath>

namespace hydrant::tree {
namespace {

// Variances of logarithms.
constexpr double kSpeedMoves = 0.0009;  // 3 % a step
constexpr double kCostMoves = 0.00001;  // 0.3 % a step: contexts grow, and neighbours use other parts of the machine
constexpr double kNoSpeed = 9;          // nothing is known of the speed: a factor of 20
constexpr double kBelieved = 0.16;      // a cost that is believed but never measured: a factor of 1.5
constexpr double kMostDoubt = 1;        // upper limit for a cost that was measured once
constexpr double kLeastNoise = 0.0001, kMostNoise = 0.04;  // of one step's time: 1 to 20 %
constexpr double kFar = 3;                                 // standard deviations from which a time is odd
constexpr int32_t kMostOdd = 2;  // odd times in a row that may be chance; with one more the speed has jumped
constexpr double kMeanOf = 32;   // the noise is the mean of about so many surprises
constexpr double kLeastMilliseconds = 1e-6, kMostMilliseconds = 1e9;

}  // namespace

StepTimes::StepTimes(size_t num_trees) : mean_(num_trees), covariance_(num_trees * num_trees), counts_(num_trees) {
  covariance(0, 0) = kNoSpeed;
}

double StepTimes::NoiseVariance() const {
  const double standard = 1.25 * deviation_;  // of a normal distribution with this mean absolute deviation
  return std::clamp(standard * standard, kLeastNoise, kMostNoise);
}

void StepTimes::Observe(size_t tree, double milliseconds, double believed) {
  const double time = std::log(std::clamp(milliseconds, kLeastMilliseconds, kMostMilliseconds));
  covariance(0, 0) = std::min(covariance(0, 0) + kSpeedMoves, kNoSpeed);
  for (size_t other = 1; other < counts_.size(); ++other) {
    if (counts_[other] > 0) covariance(other, other) = std::min(covariance(other, other) + kCostMoves, kMostDoubt);
  }
  const bool is_first = counts_[tree]++ == 0;
  if (tree > 0 && is_first) {
    mean_[tree] = std::log(believed);
    covariance(tree, tree) = kBelieved;
  }
  double surprise = time - mean_[0] - (tree > 0 ? mean_[tree] : 0);
  const double noise = NoiseVariance();
  const double expected = covariance(0, 0) + noise + (tree > 0 ? covariance(tree, tree) + 2 * covariance(0, tree) : 0);
  const double far = kFar * std::sqrt(std::max(expected, noise));
  odd_ = std::abs(surprise) > far ? odd_ + 1 : 0;
  unsettled_ = odd_ > 0 && tree != last_tree_;
  if (unsettled_) {  // the speed has jumped, or the cost of either tree is not what it was held to be
    covariance(0, 0) = std::min(covariance(0, 0) + surprise * surprise, kNoSpeed);
    for (const size_t either : {tree, last_tree_}) {
      if (either == 0) continue;
      covariance(either, either) = std::min(covariance(either, either) + surprise * surprise, kMostDoubt);
    }
  } else if (odd_ > kMostOdd) {
    covariance(0, 0) = std::min(covariance(0, 0) + surprise * surprise, kNoSpeed);
  } else {
    surprise = std::clamp(surprise, -far, far);
  }
  if (!is_first && covariance(0, 0) < kNoSpeed / 2) {  // an unknown speed is no noise
    ++surprises_;
    deviation_ +=
        (std::min(std::abs(surprise), 0.5) - deviation_) / std::min(static_cast<double>(surprises_) + 4, kMeanOf);
  }
  last_tree_ = tree;
  Correct(tree, surprise, noise);
}

// The filter's update for the observation speed + cost of `tree`.
void StepTimes::Correct(size_t tree, double surprise, double noise) {
  const size_t n = counts_.size();
  std::vector<double> shared(n);  // covariance of the state and the observation
  for (size_t i = 0; i < n; ++i) shared[i] = covariance(i, 0) + (tree > 0 ? covariance(i, tree) : 0);
  const double total = shared[0] + (tree > 0 ? shared[tree] : 0) + noise;
  for (size_t i = 0; i < n; ++i) mean_[i] += shared[i] / total * surprise;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) covariance(i, j) -= shared[i] * shared[j] / total;
  }
}

void StepTimes::Recall(size_t tree, double cost_or_speed, double doubt, int64_t count) {
  mean_[tree] = std::log(cost_or_speed);
  if (tree > 0) covariance(tree, tree) = std::min(doubt * doubt, kMostDoubt);
  counts_[tree] = count;
}

double StepTimes::Cost(size_t tree) const { return tree == 0 ? 1 : std::exp(mean_[tree]); }

double StepTimes::Milliseconds(size_t tree) const { return std::exp(mean_[0]) * Cost(tree); }

double StepTimes::Doubt(size_t a, size_t b) const {
  const auto variance = [this](size_t i, size_t j) { return i == 0 || j == 0 ? 0 : covariance(i, j); };
  return std::sqrt(std::max(variance(a, a) + variance(b, b) - 2 * variance(a, b), 0.0));
}

}  // namespace hydrant::tree
