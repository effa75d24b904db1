// SPDX-License-Identifier: Apache-2.0
#include "traffic/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hydrant::traffic::figures_test {
namespace {

Reply Whole(int64_t index, const std::string& text) {
  Reply reply;
  reply.index = index;
  reply.start = 1;
  reply.first = 1.25;
  reply.last = 2.25;
  reply.end = 3;
  reply.status = 200;
  reply.text = text;
  reply.gaps = {0.75, 0.25};
  reply.num_events = 3;
  reply.num_tokens = 5;
  reply.num_prompt_tokens = 7;
  reply.has_usage = true;
  reply.num_steps = 2;
  reply.num_step_tokens = 4;
  return reply;
}

TEST(FiguresTest, TimesAreOfWholeRepliesAndErrorsAreCountedByKind) {
  LoadResult run;
  run.seconds = 4;
  run.num_dropped = 2;
  run.replies = {Whole(0, "a"), Whole(1, "b"), Whole(2, "c"), Whole(3, "d")};
  run.replies[2].failure = Failure::kStatus;
  run.replies[2].status = 429;
  run.replies[2].problem = "too many";
  run.replies[3].failure = Failure::kCut;
  const std::vector<LoadResult> runs = {run, run};
  const Figures figures = FiguresOf(runs);
  EXPECT_EQ(figures.num_replies, 4);
  EXPECT_EQ(figures.num_failed, 4);
  EXPECT_EQ(figures.num_dropped, 4);
  EXPECT_THAT(figures.errors, testing::ElementsAre(testing::Pair("cut stream", 2), testing::Pair("status 429", 2)));
  EXPECT_EQ(figures.first_problem, "status 429: too many");
  EXPECT_EQ(figures.num_tokens, 20);
  EXPECT_EQ(figures.num_prompt_tokens, 28);
  EXPECT_DOUBLE_EQ(figures.tokens_per_second(), 2.5);
  EXPECT_DOUBLE_EQ(figures.replies_per_second(), 0.5);
  EXPECT_DOUBLE_EQ(figures.first_token.p50, 250);
  EXPECT_DOUBLE_EQ(figures.per_token.p50, 250) << "a second for four tokens after the first";
  EXPECT_EQ(figures.between.count, 8U);
  EXPECT_DOUBLE_EQ(figures.between.max, 750);
  EXPECT_DOUBLE_EQ(figures.whole.p99, 2000);
  EXPECT_DOUBLE_EQ(figures.tokens_per_step, 2);
  EXPECT_EQ(FiguresOf({}).tokens_per_second(), 0);
}

TEST(TextComparisonTest, TextsOfOneTurnAreHeldTogether) {
  LoadResult drafted, plain;
  drafted.replies = {Whole(0, "abc"), Whole(1, "def"), Whole(2, "only here")};
  plain.replies = {Whole(1, "dEf"), Whole(0, "abc"), Whole(3, "cut")};
  plain.replies.push_back(Whole(0, "xyz"));
  plain.replies.back().turn = 1;  // nobody else had that turn
  TextComparison texts;
  texts.Add("with drafts", drafted);
  EXPECT_EQ(texts.num_compared(), 0);
  texts.Add("plain", plain);
  EXPECT_EQ(texts.num_compared(), 2);
  EXPECT_EQ(texts.num_different(), 1);
  EXPECT_EQ(texts.first(), "prompt 2, turn 1: plain differs from with drafts at byte 1");
  drafted.replies[0].text = "ab";  // a beginning is another text, too
  texts.Add("with drafts", drafted);
  EXPECT_EQ(texts.num_different(), 2);
}

}  // namespace
}  // namespace hydrant::traffic::figures_test
