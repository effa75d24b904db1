// SPDX-License-Identifier: Apache-2.0
#include "eval/latency.h"

#include <gtest/gtest.h>

#include <atomic>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::eval::latency_test {
namespace {

std::string Models() { return test::SourceDir() + "/models/"; }

Engine Load(const std::string& model, const std::string& draft = "") {
  EngineOptions options;
  options.model = model;
  options.draft = draft;
  if (!draft.empty()) options.tree = "[[0],[0,0]]";  // auto may find in twelve tokens that drafting does not pay
  options.load_tokenizer = false;
  return Engine(options);
}

GenerationRequest Request() {
  GenerationRequest request;
  request.prompt_ids = {1, 334, 3476};
  request.stop.max_tokens = 12;
  return request;
}

TEST(LatencyTest, EveryMethodRunsEveryRoundAndTextsAreEqual) {
  Engine engine = Load(Models() + "tale-14m", Models() + "tale-14m-hydra-pp");
  const LatencyMethod methods[] = {{"plain", &engine, false}, {"hydra++", &engine, true}};
  int calls = 0;
  LatencyOptions options{.runs = 3};
  options.on_progress = [&calls](double) { return ++calls > 0; };
  const LatencyResult result = MeasureLatency(methods, Request(), options);
  EXPECT_EQ(calls, 8);  // one round untimed
  EXPECT_EQ(result.rounds, 3);
  EXPECT_EQ(result.token_ids.size(), 12U);
  ASSERT_EQ(result.rows.size(), 2U);
  EXPECT_EQ(result.rows[0].runs_ms.size(), 3U);
  EXPECT_EQ(result.rows[0].speedup.median, 1);
  EXPECT_EQ(result.rows[0].tokens_per_step, 1);
  EXPECT_GT(result.rows[1].tokens_per_step, 1);
  EXPECT_GT(result.rows[1].decode_tokens_per_second.min, 0);
}

TEST(LatencyTest, AnInterruptedRoundDoesNotCount) {
  Engine engine = Load(Models() + "tale-14m");
  const LatencyMethod methods[] = {{"plain", &engine, false}, {"again", &engine, false}};
  int calls = 0;
  LatencyOptions options{.runs = 5};
  options.on_progress = [&calls](double) { return ++calls < 5; };
  const LatencyResult result = MeasureLatency(methods, Request(), options);
  EXPECT_EQ(result.rounds, 1);  // 2 calls untimed, 2 in the first round, and the fifth stops the second
  ASSERT_EQ(result.rows.size(), 2U);
  EXPECT_EQ(result.rows[1].runs_ms.size(), 1U);
}

// Its text is a part, which must not be compared with whole ones.
TEST(LatencyTest, AStoppedGenerationDoesNotCount) {
  std::atomic<bool> stop = false;
  EngineOptions load;
  load.model = Models() + "tale-14m";
  load.stop = &stop;
  Engine engine(load);
  const LatencyMethod methods[] = {{"plain", &engine, false}, {"again", &engine, false}};
  int calls = 0;
  LatencyOptions options{.runs = 1};
  options.on_progress = [&](double) {
    stop = ++calls == 3;
    return true;
  };
  EXPECT_EQ(MeasureLatency(methods, Request(), options).rounds, 0);
  EXPECT_EQ(calls, 3);  // the last generation of all was stopped
}

// Two models on the same request: the texts differ, and that is told.
TEST(LatencyTest, UnequalTextsAreRefused) {
  Engine tale = Load(Models() + "tale-14m");
  Engine other = Load(test::SourceDir() + "/tests/golden/base_mha");
  const LatencyMethod methods[] = {{"plain", &tale, false}, {"other", &other, false}};
  GenerationRequest request = Request();
  request.prompt_ids = {1, 3, 4};
  EXPECT_THROW(MeasureLatency(methods, request, {.runs = 1}), InternalError);
}

}  // namespace
}  // namespace hydrant::eval::latency_test
