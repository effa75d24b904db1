// SPDX-License-Identifier: Apache-2.0
#include "sequence/reply_end.h"

#include <gtest/gtest.h>

namespace hydrant::sequence::reply_end_test {
namespace {

constexpr int32_t kEos = 2;

EndRules Rules(int32_t max_tokens) {
  EndRules rules{.eos_token_ids = {kEos}, .max_positions = 50};
  rules.stop.max_tokens = max_tokens;
  return rules;
}

// Pushes tokens 10, 11, .. until the reply ends. Returns how many there were.
int32_t Length(const EndRules& rules, size_t prompt, FinishReason expected) {
  ReplyEnd end(rules, prompt, nullptr);
  for (int32_t i = 1; i <= 100; ++i) {
    const std::optional<FinishReason> reason = end.Push(9 + i);
    if (!reason) continue;
    EXPECT_EQ(*reason, expected);
    return i;
  }
  return 0;
}

TEST(ReplyEndTest, TheLimitOfTokensEndsIt) {
  EXPECT_EQ(Length(Rules(1), 20, FinishReason::kLength), 1);
  EXPECT_EQ(Length(Rules(7), 20, FinishReason::kLength), 7);
  EXPECT_EQ(Length(Rules(30), 20, FinishReason::kLength), 30);
}

TEST(ReplyEndTest, TheContextOfPromptAndReplyEndsIt) {
  EXPECT_EQ(Length(Rules(31), 20, FinishReason::kContext), 30);
  EXPECT_EQ(Length(Rules(31), 49, FinishReason::kContext), 1);
}

TEST(ReplyEndTest, AnEosEndsItUnlessItIsIgnored) {
  EndRules rules = Rules(3);
  rules.eos_token_ids.push_back(11);
  EXPECT_EQ(Length(rules, 20, FinishReason::kEos), 2);
  rules.stop.max_tokens = 2;
  EXPECT_EQ(Length(rules, 20, FinishReason::kEos), 2) << "the last token that the limit allows may be an EOS";
  rules.stop.ignore_eos = true;
  EXPECT_EQ(Length(rules, 20, FinishReason::kLength), 2);
}

TEST(ReplyEndTest, EveryTokenHasAPlaceInTheText) {
  ReplyEnd end(Rules(9), 3, nullptr);
  EXPECT_FALSE(end.Push(5));
  EXPECT_TRUE(end.Push(kEos));
  end.Close();
  EXPECT_EQ(end.text().num_tokens(), 2);
  EXPECT_EQ(end.text().num_ready(), 2);
}

}  // namespace
}  // namespace hydrant::sequence::reply_end_test
