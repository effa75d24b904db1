// SPDX-License-Identifier: Apache-2.0
#include "draft/prediction.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace hydrant::draft::prediction_test {
namespace {

std::vector<int32_t> From(int32_t first, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<int32_t> NextOf(const Prediction& prediction, int32_t most) {
  const auto next = prediction.Next(most);
  return {next.begin(), next.end()};
}

TEST(PredictionTest, ChainsGrowWithWhatAgrees) {
  Prediction prediction(From(100, 60));
  EXPECT_EQ(NextOf(prediction, 64), From(100, Prediction::kFirstChain));
  EXPECT_EQ(NextOf(prediction, 3), From(100, 3));
  prediction.Append(From(100, 8));
  EXPECT_EQ(NextOf(prediction, 64), From(108, 24));
  EXPECT_EQ(NextOf(prediction, 0), From(0, 0));
  prediction.Append(From(108, 50));
  EXPECT_EQ(NextOf(prediction, 64), From(158, 2));
  prediction.Append(From(158, 2));
  EXPECT_EQ(NextOf(prediction, 64), From(0, 0)) << "the prediction has ended";
}

TEST(PredictionTest, ThePlaceIsFoundAgain) {
  Prediction replaced(From(100, 60));
  replaced.Append(std::vector<int32_t>{100, 101, 7});
  EXPECT_TRUE(NextOf(replaced, 9).empty());
  replaced.Append(std::vector<int32_t>{103});
  EXPECT_TRUE(NextOf(replaced, 9).empty()) << "one token may stand anywhere";
  replaced.Append(std::vector<int32_t>{104});
  EXPECT_EQ(NextOf(replaced, 9), From(105, 4));
  Prediction inserted(From(100, 60));
  inserted.Append(std::vector<int32_t>{100, 7, 8, 9, 101, 102});
  EXPECT_EQ(NextOf(inserted, 1), From(103, 1));
  Prediction left_out(From(100, 60));
  left_out.Append(std::vector<int32_t>{100, 120, 121, 122});
  EXPECT_EQ(NextOf(left_out, 1), From(123, 1));
}

TEST(PredictionTest, OfEqualMatchesTheNearestIsTaken) {
  std::vector<int32_t> tokens = {1, 2, 50, 3, 4, 5, 6, 7, 1, 2, 60, 8, 9, 1, 2, 70};
  Prediction prediction(tokens);
  prediction.Append(std::vector<int32_t>{1, 2, 50, 3, 4, 5, 6, 99, 1, 2});
  EXPECT_EQ(NextOf(prediction, 1), std::vector<int32_t>{60});
  Prediction longer(tokens);
  longer.Append(std::vector<int32_t>{1, 2, 99, 9, 1, 2});
  EXPECT_EQ(NextOf(longer, 1), std::vector<int32_t>{70}) << "three tokens agree there";
}

TEST(PredictionTest, AnEmptyOneSaysNothing) {
  Prediction prediction({});
  EXPECT_TRUE(NextOf(prediction, 9).empty());
  prediction.Append(From(1, 5));
  EXPECT_TRUE(NextOf(prediction, 9).empty());
}

}  // namespace
}  // namespace hydrant::draft::prediction_test
