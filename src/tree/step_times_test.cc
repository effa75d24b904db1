// SPDX-License-Identifier: Apache-2.0
#include "tree/step_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace hydrant::tree::step_times_test {
namespace {

// Times of a machine: the tree's cost, the speed of the moment, and noise of each step.
class Machine {
 public:
  Machine(uint32_t seed, double noise) : random_(seed), noise_(noise) {}
  void Step(StepTimes& times, size_t tree, double cost, double believed = 1.3) {
    times.Observe(tree, speed * cost * std::exp(noise_ * normal_(random_)), believed);
  }
  double speed = 10;

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  double noise_;
};

TEST(StepTimesTest, CostsAreKnownAfterSomeChangesOfTree) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    StepTimes times(3);
    Machine machine(seed, 0.05);
    for (int i = 0; i < 16; ++i) {
      machine.Step(times, 0, 1);
      machine.Step(times, 1, 1.5);
      machine.Step(times, 2, 2.5);
    }
    EXPECT_NEAR(times.Cost(1), 1.5, 0.15) << seed;
    EXPECT_NEAR(times.Cost(2), 2.5, 0.25) << seed;
    EXPECT_NEAR(times.Milliseconds(2), 25, 3) << seed;
    EXPECT_LT(times.Doubt(1), 0.1);
    EXPECT_LT(times.Doubt(1, 2), 0.1);
    EXPECT_EQ(times.count(2), 16);
  }
}

// What steps with one tree take says nothing of the others, however many there are and however uneven.
TEST(StepTimesTest, CostsStayWhileOneTreeIsUsed) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    StepTimes times(2);
    Machine machine(seed, 0.03);
    for (int i = 0; i < 8; ++i) {
      machine.Step(times, 0, 1);
      machine.Step(times, 1, 1.5);
    }
    const double before = times.Cost(1);
    for (int i = 0; i < 4000; ++i) times.Observe(0, i % 10 == 0 ? 25 : 10 + i % 3, 1);
    EXPECT_NEAR(times.Cost(1), before, 0.1 * before) << seed;
    for (int i = 0; i < 4000; ++i) times.Observe(1, 15, 1);
    EXPECT_NEAR(times.Cost(1), before, 0.15 * before) << seed;
  }
}

TEST(StepTimesTest, AMachineThatSlowsDownAsAWholeKeepsItsCosts) {
  StepTimes times(2);
  Machine machine(3, 0.02);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 20; ++i) {
      machine.Step(times, 1, 1.5);
      if (i % 4 == 0) machine.Step(times, 0, 1);
    }
    machine.speed *= round % 2 == 0 ? 3 : 1. / 3;
  }
  EXPECT_NEAR(times.Cost(1), 1.5, 0.2);
}

TEST(StepTimesTest, ASingleOddTimeChangesLittle) {
  StepTimes times(2);
  Machine machine(5, 0.02);
  for (int i = 0; i < 8; ++i) {
    machine.Step(times, 0, 1);
    machine.Step(times, 1, 1.5);
  }
  times.Observe(1, 1000, 1);
  EXPECT_NEAR(times.Cost(1), 1.5, 0.15);
  EXPECT_NEAR(times.Milliseconds(0), 10, 1.5);
}

TEST(StepTimesTest, WhatIsRecalledHoldsOnAFasterMachine) {
  StepTimes times(3);
  times.Recall(0, 50, 0, 100);
  times.Recall(1, 1.4, 0.05, 20);
  EXPECT_DOUBLE_EQ(times.Milliseconds(1), 70);
  for (int i = 0; i < 3; ++i) times.Observe(0, 10, 1);
  EXPECT_NEAR(times.Milliseconds(0), 10, 0.5);
  EXPECT_NEAR(times.Milliseconds(1), 14, 0.7);
  EXPECT_EQ(times.count(1), 20);
  EXPECT_EQ(times.count(2), 0);
}

}  // namespace
}  // namespace hydrant::tree::step_times_test
