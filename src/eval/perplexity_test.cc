// SPDX-License-Identifier: Apache-2.0
#include "eval/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/logits.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::eval::perplexity_test {
namespace {

using ::testing::HasSubstr;

class EvalPerplexityTest : public ::testing::Test {
 protected:
  EvalPerplexityTest() {
    EngineOptions options;
    options.model = test::SourceDir() + "/tests/golden/base_mha";
    options.load_tokenizer = false;
    options.prefill_chunk = 7;
    loaded_ = load::LoadModel(options);
    for (int32_t i = 0; i < 60; ++i) text_.push_back((i * 37 + 11) % 512);
  }

  // -ln p of text_[at] after text_[begin .. at - 1].
  double Loss(int64_t begin, int64_t at) {
    const std::vector<int32_t> before(text_.begin() + begin, text_.begin() + at);
    const EvalLogitsResult result = EvalLogits(*loaded_, before, {});
    const float* row = result.logits.row(result.logits.rows() - 1);
    double sum = 0;
    for (int64_t v = 0; v < result.logits.cols(); ++v) sum += std::exp(static_cast<double>(row[v]));
    return std::log(sum) - static_cast<double>(row[text_[static_cast<size_t>(at)]]);
  }

  std::string Refusal(const PerplexityOptions& options, const std::vector<std::vector<int32_t>>& texts) {
    try {
      EvalPerplexity(*loaded_, texts, options);
      return "";
    } catch (const UserError& e) {
      return e.what();
    }
  }

  std::unique_ptr<load::LoadedModel> loaded_;
  std::vector<int32_t> text_;
};

TEST_F(EvalPerplexityTest, OneWindowScoresEveryTokenButTheFirst) {
  double expected = 0;
  for (int64_t at = 1; at < 60; ++at) expected += Loss(0, at);
  const PerplexityResult result = EvalPerplexity(*loaded_, std::span(&text_, 1), {});
  EXPECT_EQ(result.num_scored, 59);
  EXPECT_EQ(result.num_windows, 1);
  EXPECT_NEAR(result.log_loss, expected, 1e-9 * expected);
  EXPECT_NEAR(result.perplexity(), std::exp(expected / 59), 1e-9 * result.perplexity());
}

TEST_F(EvalPerplexityTest, WindowsScoreEachTokenOnceWithTheContextBefore) {
  for (const auto& [context, stride] : std::vector<std::pair<int32_t, int32_t>>{{20, 8}, {20, 20}, {20, 1}, {59, 30}}) {
    double expected = 0;
    int64_t done = 1, windows = 0;
    for (int64_t begin = 0; done < 60; begin += stride) {
      const int64_t end = std::min<int64_t>(begin + context, 60);
      for (int64_t at = std::max(done, begin + 1); at < end; ++at) expected += Loss(begin, at);
      // With stride = context a window's first token has nothing before it and is scored after the whole window before.
      done = end;
      ++windows;
    }
    const PerplexityResult result =
        EvalPerplexity(*loaded_, std::span(&text_, 1), {.context = context, .stride = stride});
    EXPECT_EQ(result.num_windows, windows) << context << " " << stride;
    EXPECT_EQ(result.num_scored, stride == context ? 57 : 59) << context << " " << stride;
    EXPECT_NEAR(result.log_loss, expected, 1e-9 * expected) << context << " " << stride;
  }
}

TEST_F(EvalPerplexityTest, TextsAreScoredByThemselves) {
  const std::vector<int32_t> first(text_.begin(), text_.begin() + 10), one = {5}, none;
  const PerplexityResult a = EvalPerplexity(*loaded_, std::span(&first, 1), {});
  const PerplexityResult b = EvalPerplexity(*loaded_, std::span(&text_, 1), {});
  const std::vector<std::vector<int32_t>> all = {first, one, none, text_};
  const PerplexityResult both = EvalPerplexity(*loaded_, all, {});
  EXPECT_EQ(both.num_scored, a.num_scored + b.num_scored);
  EXPECT_DOUBLE_EQ(both.log_loss, a.log_loss + b.log_loss);
}

TEST_F(EvalPerplexityTest, EndsAfterSoManyTokens) {
  const std::vector<std::vector<int32_t>> texts = {text_, text_};
  const PerplexityResult result = EvalPerplexity(*loaded_, texts, {.context = 20, .max_tokens = 70});
  EXPECT_EQ(result.num_scored, 70);
  double last = 0;
  EvalPerplexity(*loaded_, texts, {.progress = [&last](double share) { last = share; }});
  EXPECT_EQ(last, 1);
}

TEST_F(EvalPerplexityTest, WhatCannotBeScoredIsRefused) {
  const std::vector<std::vector<int32_t>> texts = {text_};
  EXPECT_THAT(Refusal({.context = 1}, texts), HasSubstr("PerplexityOptions::context is 1, expected 2 to"));
  EXPECT_THAT(Refusal({.context = 1 << 20}, texts), HasSubstr("PerplexityOptions::context is 1048576"));
  EXPECT_THAT(Refusal({.context = 20, .stride = 21}, texts),
              HasSubstr("PerplexityOptions::stride is 21, expected 1 to the context"));
  EXPECT_THAT(Refusal({}, {{1}, {}}), HasSubstr("nothing to score"));
  EXPECT_THAT(Refusal({}, {{1, 512}}), HasSubstr("a text has token 512, expected 0 to 511"));
}

}  // namespace
}  // namespace hydrant::eval::perplexity_test
