// SPDX-License-Identifier: Apache-2.0
#include "eval/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::eval::batch_test {
namespace {

std::string Models() { return test::SourceDir() + "/models/"; }

Engine Load(const std::string& draft = "") {
  EngineOptions options;
  options.model = Models() + "tale-14m";
  if (!draft.empty()) options.draft = Models() + draft;
  if (!draft.empty()) options.tree = "[[0],[0,0]]";  // auto may find in few tokens that drafting does not pay
  options.load_tokenizer = false;
  return Engine(options);
}

std::vector<GenerationRequest> Requests(int32_t count) {
  std::vector<GenerationRequest> requests;
  for (int32_t i = 0; i < count; ++i) {
    GenerationRequest& request = requests.emplace_back();
    request.prompt_ids = {1, 334, 3476 - i};
    request.stop = {.max_tokens = 10, .ignore_eos = true, .stop = {}};
  }
  return requests;
}

TEST(BatchTest, EveryMethodDecodesEveryNumberOfSequences) {
  Engine engine = Load("tale-14m-hydra-pp");
  const BatchMethod methods[] = {{"plain", &engine, false}, {"hydra++", &engine, true}};
  int calls = 0;
  BatchOptions options{.sequences = {1, 3}, .rounds = 2};
  options.on_progress = [&calls](double share) {
    EXPECT_LE(share, 1);
    return ++calls > 0;
  };
  const BatchResult result = MeasureBatches(methods, Requests(3), options);
  EXPECT_EQ(calls, 3 + 4 * 3) << "each alone, then one round untimed and two timed";
  EXPECT_EQ(result.rounds, 2);
  ASSERT_EQ(result.rows.size(), 2U);
  ASSERT_EQ(result.rows[1].size(), 2U);
  EXPECT_EQ(result.rows[0][1].sequences, 3);
  EXPECT_EQ(result.rows[0][1].tokens_per_step, 1);
  EXPECT_GT(result.rows[1][1].tokens_per_step, 1);
  EXPECT_EQ(result.rows[0][1].speedup.min, 1);
  for (const std::vector<BatchRow>& rows : result.rows) {
    for (const BatchRow& row : rows) {
      EXPECT_GT(row.tokens_per_second.min, 0);
      EXPECT_GT(row.decode_tokens_per_second.min, 0);
      EXPECT_GT(row.speedup.min, 0);
    }
  }
}

// Five requests, two at a time: every one is decoded, by the tree of the method.
TEST(BatchTest, AQueueDecodesEveryRequest) {
  Engine engine = Load("tale-14m-hydra-pp");
  const BatchMethod methods[] = {{"plain", &engine, false}, {"three", &engine, true, "[[0],[1],[2]]"}};
  std::vector<GenerationRequest> requests = Requests(5);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].stop.max_tokens = 4 + static_cast<int32_t>(i);
  const BatchResult result = MeasureBatches(methods, requests, {.sequences = {2}, .is_queue = true, .rounds = 1});
  ASSERT_EQ(result.rounds, 1);
  const BatchRow &plain = result.rows[0][0], &three = result.rows[1][0];
  EXPECT_EQ(plain.num_emitted, 1);
  EXPECT_EQ(plain.nodes_per_step, 0);
  EXPECT_EQ(plain.tree, "");
  EXPECT_EQ(three.nodes_per_step, 3) << "its own tree, not the engine's";
  EXPECT_EQ(three.tree, "custom");
  EXPECT_GE(three.num_emitted, three.tokens_per_step);
  EXPECT_GT(three.draft_ms, plain.draft_ms);
  EXPECT_GT(three.forward_ms, 0);
  EXPECT_EQ(three.decode_tokens_per_second.median, three.tokens_per_second.median);
}

TEST(BatchTest, AnotherTextIsAnError) {
  Engine engine = Load();
  std::vector<GenerationRequest> requests = Requests(2);
  Engine other = [] {
    EngineOptions options;
    options.model = Models() + "tale-14m";
    options.weights = "w4a8";  // another model, in effect
    options.load_tokenizer = false;
    return Engine(options);
  }();
  for (GenerationRequest& request : requests) request.stop.max_tokens = 64;
  const BatchMethod methods[] = {{"plain", &engine, false}, {"other", &other, false}};
  try {
    MeasureBatches(methods, requests, {.sequences = {2}, .rounds = 1});
    ADD_FAILURE();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("other: sequence "));
  }
}

TEST(BatchTest, AnInterruptedRoundDoesNotCount) {
  Engine engine = Load();
  const BatchMethod methods[] = {{"plain", &engine, false}};
  int calls = 0;
  BatchOptions options{.sequences = {1, 2}, .rounds = 5};
  options.on_progress = [&calls](double) { return ++calls < 7; };
  const BatchResult result = MeasureBatches(methods, Requests(2), options);
  EXPECT_EQ(result.rounds, 1);  // two alone, two untimed, two in the first round, and the seventh stops the second
  EXPECT_GT(result.rows[0][0].tokens_per_second.min, 0);
}

}  // namespace
}  // namespace hydrant::eval::batch_test
