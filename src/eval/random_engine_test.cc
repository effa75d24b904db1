// SPDX-License-Identifier: Apache-2.0
#include "eval/random_engine.h"

#include <gtest/gtest.h>

#include "eval/latency.h"

namespace hydrant::eval::random_engine_test {
namespace {

EngineOptions Options() {
  EngineOptions options;
  options.weights = options.head_weights = "w4a8";
  options.threads = 1;
  return options;
}

GenerationRequest Request() {
  GenerationRequest request;
  request.prompt_ids = {1, 2, 3};
  request.stop = {.max_tokens = 12, .ignore_eos = true, .stop = {}};
  return request;
}

TEST(RandomEngineTest, EveryKindOfHeadsDraftsOverOneBaseAndTheTextIsThatOfPlainDecoding) {
  const auto engines = MakeRandomEngines({.shape = "tale", .heads = {"medusa", "hydra", "hydra++"}}, Options(), {});
  ASSERT_EQ(engines.size(), 3U);
  std::vector<LatencyMethod> methods = {{"plain", engines[0].get(), false}};
  for (const auto& engine : engines) methods.push_back({engine->info().drafter, engine.get(), true});
  const LatencyResult result = MeasureLatency(methods, Request(), {.runs = 1});
  EXPECT_EQ(result.token_ids.size(), 12U);
  ASSERT_EQ(result.rows.size(), 4U);
  EXPECT_LT(result.rows[3].tokens_per_step, 1.2);  // random heads know nothing
  const EngineInfo& info = engines[2]->info();
  EXPECT_EQ(info.drafter, "hydra++");
  EXPECT_EQ(info.num_heads, 4);
  EXPECT_EQ(info.weights, "w4a8");
  EXPECT_EQ(info.head_weights, "w4a8");
  EXPECT_EQ(info.kv_type, "bf16");
  EXPECT_GT(info.head_weight_bytes, 0U);
  EXPECT_FALSE(info.has_tokenizer);
}

TEST(RandomEngineTest, TheTreeAndTheDraftVocabularyAreThoseOfTheOptions) {
  EngineOptions options = Options();
  options.tree = "[[0],[0,0],[1]]";
  options.draft_vocab_size = 512;
  const auto engines = MakeRandomEngines({.shape = "tale", .heads = {"hydra++"}}, options, {});
  ASSERT_EQ(engines.size(), 1U);
  EXPECT_EQ(engines[0]->info().num_draft_vocab, 512);
  const GenerationResult result = engines[0]->Generate(Request());
  EXPECT_EQ(result.token_ids.size(), 12U);
  EXPECT_EQ(result.tree.chosen.nodes, 3);
}

TEST(RandomEngineTest, WithoutHeadsThereIsOneEngineAndStoppingLeavesNone) {
  const auto plain = MakeRandomEngines({.shape = "tale", .heads = {}}, Options(), {});
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(plain[0]->info().drafter, "none");
  EXPECT_TRUE(MakeRandomEngines({.shape = "tale", .heads = {}}, Options(), [](double) { return false; }).empty());
}

}  // namespace
}  // namespace hydrant::eval::random_engine_test
