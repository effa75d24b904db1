// SPDX-License-Identifier: Apache-2.0
// Drafts that come with a request, and log probabilities: the text is that of plain decoding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hydrant/engine.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::text_drafts_test {
namespace {

Engine Tale(bool with_heads) {
  EngineOptions options;
  options.model = test::SourceDir() + "/models/tale-14m";
  if (with_heads) options.draft = test::SourceDir() + "/models/tale-14m-hydra-pp";
  options.weights = "w8a8";
  return Engine(options);
}

GenerationRequest About(const Engine& engine, const std::string& text, int32_t max_tokens, float temperature) {
  GenerationRequest request;
  request.prompt_ids = engine.Tokenize(text, true, true);
  request.sampling.temperature = temperature;
  request.sampling.seed = 3;
  request.stop = {.max_tokens = max_tokens, .ignore_eos = true, .stop = {}};
  return request;
}

TEST(TextDraftsTest, PredictionsChangeTheSpeedNotTheText) {
  for (const bool with_heads : {false, true}) {
    Engine engine = Tale(with_heads);
    for (const float temperature : {0.0F, 0.8F}) {
      GenerationRequest request = About(engine, "Once upon a time", 100, temperature);
      request.use_drafter = false;
      const std::vector<int32_t> plain = engine.Generate(request).token_ids;
      request.use_drafter = true;
      request.prediction_ids = plain;
      const GenerationResult perfect = engine.Generate(request);
      EXPECT_EQ(perfect.token_ids, plain);
      EXPECT_LE(perfect.num_emitted.size(), 8U);
      EXPECT_EQ(perfect.num_predicted_accepted, std::ranges::count(perfect.token_source, DraftSource::kPrediction));
      EXPECT_GE(perfect.num_predicted_accepted, 80);
      // Two tokens are others, one is missing, three are too many.
      std::vector<int32_t>& changed = request.prediction_ids;
      changed[20] = changed[21] = 5;
      changed.erase(changed.begin() + 50);
      changed.insert(changed.begin() + 70, {9, 10, 11});
      const GenerationResult edited = engine.Generate(request);
      EXPECT_EQ(edited.token_ids, plain);
      EXPECT_GE(edited.num_predicted_accepted, 60) << "the place is found again";
      EXPECT_GT(edited.num_predicted, edited.num_predicted_accepted);
      request.prediction_ids = std::vector<int32_t>(500, 7);
      EXPECT_EQ(engine.Generate(request).token_ids, plain);
    }
  }
}

TEST(TextDraftsTest, GivenDraftsAreVerifiedInTheFirstStep) {
  Engine engine = Tale(true);
  GenerationRequest request = About(engine, "Once upon a time", 30, 0.8F);
  request.use_drafter = false;
  const std::vector<int32_t> plain = engine.Generate(request).token_ids;
  request.use_drafter = true;
  request.draft_ids.assign(plain.begin(), plain.begin() + 10);
  const GenerationResult all = engine.Generate(request);
  EXPECT_EQ(all.token_ids, plain);
  EXPECT_EQ(all.num_given, 9);
  EXPECT_EQ(all.num_given_accepted, 9);
  EXPECT_EQ(all.num_emitted.front(), 10);
  request.draft_ids[5] = request.draft_ids[5] == 7 ? 8 : 7;
  const GenerationResult some = engine.Generate(request);
  EXPECT_EQ(some.token_ids, plain);
  EXPECT_EQ(some.num_given_accepted, 4);
  request.draft_ids[0] = request.draft_ids[0] == 7 ? 8 : 7;
  const GenerationResult none = engine.Generate(request);
  EXPECT_EQ(none.token_ids, plain);
  EXPECT_EQ(none.num_given, 0) << "the token that the prompt gives is another one";
  request.draft_ids = {-1};
  EXPECT_THROW(engine.Generate(request), UserError);
  request.draft_ids = {1};
  request.accept.rule = AcceptRule::kTypical;
  EXPECT_THROW(engine.Generate(request), UserError);
}

TEST(TextDraftsTest, LogprobsAreThoseOfPlainDecoding) {
  Engine engine = Tale(true);
  GenerationRequest request = About(engine, "Once upon a time", 40, 0.8F);
  request.num_logprobs = 3;
  request.tree = "chain";
  const GenerationResult drafted = engine.Generate(request);
  request.tree.clear();
  request.use_drafter = false;
  const GenerationResult plain = engine.Generate(request);
  ASSERT_EQ(drafted.token_ids, plain.token_ids);
  ASSERT_EQ(drafted.logprobs.size(), 40U);
  ASSERT_EQ(plain.logprobs.size(), 40U);
  EXPECT_GT(drafted.num_accepted(), 0);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(drafted.logprobs[i].chosen, plain.logprobs[i].chosen) << i;
    ASSERT_EQ(drafted.logprobs[i].top.size(), 3U);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(drafted.logprobs[i].top[k].token_id, plain.logprobs[i].top[k].token_id);
      EXPECT_EQ(drafted.logprobs[i].top[k].value, plain.logprobs[i].top[k].value);
      if (plain.logprobs[i].top[k].token_id == plain.token_ids[i]) {
        EXPECT_EQ(plain.logprobs[i].top[k].value, plain.logprobs[i].chosen);
      }
    }
    EXPECT_LE(plain.logprobs[i].chosen, plain.logprobs[i].top[0].value);
    EXPECT_LE(plain.logprobs[i].top[0].value, 0);
  }
  request.num_logprobs = -1;
  EXPECT_TRUE(engine.Generate(request).logprobs.empty());
  request.num_logprobs = 65;
  EXPECT_THROW(engine.Generate(request), UserError);
}

TEST(TextDraftsTest, APromptIsScoredAsItsTokensWereWhenTheyWereDecoded) {
  Engine engine = Tale(true);
  GenerationRequest request = About(engine, "Once upon a time", 60, 0.8F);
  request.cache_scope = "all";
  request.num_logprobs = 2;
  const GenerationResult written = engine.Generate(request);
  const size_t begin = request.prompt_ids.size();
  request.prompt_ids.insert(request.prompt_ids.end(), written.token_ids.begin(), written.token_ids.end());
  request.stop.max_tokens = 0;
  request.score_prompt = true;
  const GenerationResult scored = engine.Generate(request);
  EXPECT_TRUE(scored.token_ids.empty());
  EXPECT_TRUE(scored.text.empty());
  EXPECT_EQ(scored.finish_reason, FinishReason::kLength);
  EXPECT_EQ(scored.num_reused, 0) << "a row that is not computed has no logits";
  ASSERT_EQ(scored.prompt_logprobs.size(), request.prompt_ids.size() - 1);
  for (size_t i = 0; i < written.token_ids.size(); ++i) {
    const TokenLogprobs& score = scored.prompt_logprobs[begin + i - 1];
    EXPECT_EQ(score.chosen, written.logprobs[i].chosen) << i;
    ASSERT_EQ(score.top.size(), 2U);
    EXPECT_EQ(score.top[1].value, written.logprobs[i].top[1].value) << i;
  }
  request.stop.max_tokens = 5;
  const GenerationResult both = engine.Generate(request);
  EXPECT_EQ(both.token_ids.size(), 5U);
  EXPECT_EQ(both.prompt_logprobs.size(), scored.prompt_logprobs.size());
  EXPECT_EQ(both.prompt_logprobs.back().chosen, scored.prompt_logprobs.back().chosen);
  request.num_logprobs = -1;
  EXPECT_THROW(engine.Generate(request), UserError);
}

TEST(TextDraftsTest, EmissionsTellTheStepsTreeAndWhereTokensCameFrom) {
  Engine engine = Tale(true);
  GenerationRequest request = About(engine, "Once upon a time", 40, 0);
  request.tree = "[[0],[1],[0,0]]";
  request.num_logprobs = 0;
  std::vector<DraftSource> sources;
  std::vector<int32_t> accepted;
  size_t steps = 0, logprobs = 0;
  const GenerationResult result = engine.Generate(request, [&](const Emission& emission) {
    EXPECT_EQ(emission.token_source.size(), emission.token_ids.size());
    logprobs += emission.logprobs.size();
    sources.insert(sources.end(), emission.token_source.begin(), emission.token_source.end());
    if (emission.step == nullptr) return true;
    ++steps;
    const StepTree& step = *emission.step;
    EXPECT_EQ(step.parents.size(), step.tokens.size());
    EXPECT_EQ(step.parents[0], -1);
    EXPECT_EQ(step.source, DraftSource::kHeads);
    accepted.push_back(static_cast<int32_t>(step.accepted.size()) + 1);
    return true;
  });
  EXPECT_EQ(steps, result.num_emitted.size());
  EXPECT_EQ(accepted, result.num_emitted);
  EXPECT_EQ(sources, result.token_source);
  EXPECT_EQ(logprobs, result.token_ids.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(sources[i] == DraftSource::kBase, result.token_depth[i] == 0) << i;
  }
}

}  // namespace
}  // namespace hydrant::text_drafts_test
