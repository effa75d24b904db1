// SPDX-License-Identifier: Apache-2.0
// Many requests on one engine: what they share (steps, blocks, a common beginning) never shows in their texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "load/loaded_model.h"
#include "tests/scheduled.h"

namespace hydrant::test::scheduling_test {
namespace {

using testing::HasSubstr;

std::string MessageOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& what) {
    return what.what();
  }
}

TEST(Scheduling, AFullPoolPreemptsOrLetsWaitAndRefusesWhatCanNeverRun) {
  for (const bool may_preempt : {true, false}) {
    EngineOptions options = Options();
    options.kv_memory = BytesOfBlocks(options, 9);
    options.may_preempt = may_preempt;
    Engine engine(options);
    EXPECT_EQ(engine.info().kv_positions, 9 * 32);
    std::vector<GenerationRequest> requests;
    for (int32_t i = 0; i < 6; ++i) {
      requests.push_back(RequestOf(PromptOf(20 + 7 * i, i), 90, i % 2 == 0 ? 0.0F : 0.8F));
    }
    requests.push_back(RequestOf(PromptOf(20), 300));  // more than there is
    const std::vector<GenerationResult> results = engine.GenerateBatch(requests);
    int32_t preempted = 0;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(results[i].token_ids, Alone(requests[i])) << i;
      EXPECT_EQ(results[i].finish_reason, FinishReason::kLength);
      preempted += results[i].num_preempted;
    }
    EXPECT_EQ(preempted > 0, may_preempt);
    EXPECT_EQ(results[6].finish_reason, FinishReason::kError);
    EXPECT_THAT(MessageOf(results[6].error), HasSubstr("room for 288"));
    EXPECT_THROW(engine.Generate(requests[6]), UserError);
  }
}

TEST(Scheduling, APromptsChunksShareStepsWithTrees) {
  EngineOptions options = Options();
  options.prefill_chunk = 8;
  Engine engine(options);
  Heard first{.request = RequestOf(PromptOf(10), 100)}, second{.request = RequestOf(PromptOf(80, 1), 20)};
  Submit(engine, first);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(engine.Step());
  const size_t before = first.emitted.size();
  Submit(engine, second);
  int steps = 0;
  while (second.emitted.empty()) {
    EXPECT_TRUE(engine.Step());
    ++steps;
  }
  EXPECT_EQ(steps, 10);  // of eight rows each
  EXPECT_GE(first.emitted.size(), before + 10) << "the first went on meanwhile";
  EXPECT_EQ(second.num_calls, 10) << "asked between the parts of its prompt";
  while (engine.Step()) {
  }
  for (const Heard* heard : {&first, &second}) {
    ASSERT_TRUE(heard->result);
    EXPECT_EQ(heard->result->token_ids, Alone(heard->request));
    EXPECT_EQ(heard->emitted, heard->result->token_ids);
  }
  EXPECT_FALSE(engine.Step());
}

// A NaN in the embedding of token 77.
std::unique_ptr<load::LoadedModel> WithNan() {
  std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(Options());
  TensorView& embedding = loaded->weights.embedding;
  const auto copy = std::make_shared<std::vector<uint8_t>>(embedding.data, embedding.data + embedding.num_bytes());
  const size_t row = copy->size() / static_cast<size_t>(embedding.shape[0]);
  std::memset(copy->data() + 77 * row, 0xff, row);
  embedding.data = copy->data();
  embedding.owner = copy;
  return loaded;
}

TEST(Scheduling, WhatGoesWrongWithOneRequestStaysWithIt) {
  Engine engine(WithNan());
  std::vector<Heard> heard(5);
  for (int32_t i = 0; i < 5; ++i) {
    Tokens prompt = PromptOf(15 + i, 20 + i);
    std::ranges::replace(prompt, 77, 78);
    if (i == 1) prompt.back() = 77;
    heard[static_cast<size_t>(i)].request = RequestOf(std::move(prompt), 50);
  }
  for (size_t i = 0; i < 5; ++i) {
    if (i != 3) Submit(engine, heard[i]);
  }
  engine.Submit(heard[3].request, {.on_emit = [](const Emission&) -> bool { throw std::runtime_error("mine"); },
                                   .on_done = [&](GenerationResult done) { heard[3].result = std::move(done); }});
  while (engine.Step()) {
  }
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(heard[i].result) << i;
    EXPECT_EQ(heard[i].result->error != nullptr, i == 1 || i == 3) << i;
    if (!heard[i].result->error) {
      EXPECT_EQ(heard[i].result->token_ids, Alone(heard[i].request)) << i;
    }
  }
  EXPECT_THAT(MessageOf(heard[1].result->error), HasSubstr("NaN"));
  EXPECT_EQ(MessageOf(heard[3].result->error), "mine");
  EXPECT_THROW(engine.Generate(heard[1].request), UserError);
  EXPECT_EQ(engine.Generate(heard[0].request).token_ids, Alone(heard[0].request));
}

TEST(Scheduling, ARequestCanBeCancelledInEveryPhase) {
  EngineOptions options = Options();
  options.prefill_chunk = 8;
  options.max_running = 2;
  options.kv_memory = BytesOfBlocks(options, 16);
  Engine engine(options);
  std::vector<Heard> heard(3);
  heard[0].request = RequestOf(PromptOf(10), 100);     // decodes
  heard[1].request = RequestOf(PromptOf(100, 1), 20);  // is at its prompt
  heard[2].request = RequestOf(PromptOf(10, 2), 20);   // waits
  for (Heard& each : heard) Submit(engine, each);
  for (int i = 0; i < 5; ++i) engine.Step();
  EXPECT_FALSE(heard[0].emitted.empty());
  EXPECT_TRUE(heard[1].emitted.empty());
  for (Heard& each : heard) {
    EXPECT_FALSE(each.result);
    EXPECT_TRUE(engine.Cancel(each.id));
    EXPECT_TRUE(engine.Cancel(each.id)) << "twice is no harm";
  }
  EXPECT_FALSE(engine.Step());
  for (Heard& each : heard) {
    ASSERT_TRUE(each.result);
    EXPECT_EQ(each.result->finish_reason, FinishReason::kCancelled);
    EXPECT_FALSE(engine.Cancel(each.id)) << "it has ended";
    EXPECT_EQ(each.result->token_ids, each.emitted);
    Tokens whole = Alone(each.request);
    whole.resize(each.emitted.size());
    EXPECT_EQ(each.emitted, whole);
  }
  EXPECT_FALSE(engine.Cancel(12345));
  // Before its first step, and from within a callback.
  Heard early{.request = RequestOf(PromptOf(10), 20)};
  Submit(engine, early);
  engine.Cancel(early.id);
  engine.Step();
  EXPECT_EQ(early.result->finish_reason, FinishReason::kCancelled);
  RequestId id = 0;
  std::optional<GenerationResult> within;
  id =
      engine.Submit(RequestOf(PromptOf(10), 50), {.on_emit = [&](const Emission&) { return engine.Cancel(id); },
                                                  .on_done = [&](GenerationResult done) { within = std::move(done); }});
  while (engine.Step()) {
  }
  EXPECT_EQ(within->finish_reason, FinishReason::kCancelled);
  EXPECT_LT(within->token_ids.size(), 10U);
  // All blocks are free again.
  const GenerationRequest large = RequestOf(PromptOf(10), 16 * 32 - 20);
  EXPECT_EQ(engine.Generate(large).token_ids, Alone(large));
}

TEST(Scheduling, RequestsOfOneScopeComputeACommonBeginningOnce) {
  for (const char* heads : {"", "hydra/prefix_mlp_k2_l1", "medusa/c_v2_k4_l1"}) {
    SCOPED_TRACE(heads);
    EngineOptions options = Options();
    options.draft = *heads != 0 ? Golden(heads) : "";
    options.tree = *heads != 0 ? "[[0],[1],[0,0]]" : "";
    options.prefill_chunk = 16;
    Engine engine(options);
    GenerationRequest request = RequestOf(PromptOf(150), 40);
    request.cache_scope = "mine";
    const GenerationResult first = engine.Generate(request);
    EXPECT_EQ(first.token_ids, Alone(request));
    EXPECT_EQ(first.num_reused, 0);
    const GenerationResult again = engine.Generate(request);
    EXPECT_EQ(again.token_ids, first.token_ids);
    EXPECT_EQ(again.num_reused, 128);
    EXPECT_EQ(again.num_emitted, first.num_emitted) << "the drafter drafts the same";
    // The next turn of a chat: what was said, and more.
    GenerationRequest next = request;
    next.prompt_ids.insert(next.prompt_ids.end(), first.token_ids.begin(), first.token_ids.end());
    for (const int32_t token : {5, 9, 11}) next.prompt_ids.push_back(token);
    const GenerationResult turn = engine.Generate(next);
    EXPECT_EQ(turn.token_ids, Alone(next));
    EXPECT_GE(turn.num_reused, 160);
    // A prompt that is known as a whole, a multiple of blocks: its last row is computed all the same.
    GenerationRequest whole = request;
    whole.prompt_ids.resize(128);
    const GenerationResult known = engine.Generate(whole);
    EXPECT_EQ(known.token_ids, Alone(whole));
    EXPECT_EQ(known.num_reused, 127);
    EXPECT_EQ(engine.Generate(request).token_ids, first.token_ids) << "a shared block was written";
    for (const char* scope : {"yours", ""}) {
      GenerationRequest stranger = request;
      stranger.cache_scope = scope;
      EXPECT_EQ(engine.Generate(stranger).num_reused, 0);
      EXPECT_EQ(engine.Generate(stranger).num_reused, *scope != 0 ? 128 : 0);
    }
  }
}

TEST(Scheduling, TheStatisticsShowThatACommonBeginningIsComputedOnce) {
  EngineOptions options = Options();
  Engine engine(options);
  std::vector<Heard> all(16);
  int32_t most_shared = 0, most_running = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].request = RequestOf(PromptOf(400), 20);
    for (const int32_t token : {10, 11 + static_cast<int32_t>(i)}) all[i].request.prompt_ids.push_back(token);
    all[i].request.cache_scope = "mine";
    Submit(engine, all[i]);
  }
  EXPECT_EQ(engine.stats().num_waiting, 16);
  while (engine.Step()) {
    const EngineStats stats = engine.stats();
    most_shared = std::max(most_shared, stats.kv_blocks.shared);
    most_running = std::max(most_running, stats.num_running);
    const auto& blocks = stats.kv_blocks;
    EXPECT_EQ(blocks.used + blocks.kept + blocks.free, engine.info().kv_positions / kernels::kBlockPositions);
  }
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_prompt_rows, 402 + 15 * (402 - 384));
  EXPECT_EQ(most_shared, 12);
  EXPECT_EQ(most_running, 16);
  EXPECT_EQ(stats.num_running + stats.num_waiting + stats.kv_blocks.used + stats.kv_blocks.shared, 0);
  EXPECT_GE(stats.kv_blocks.kept, 12);
  EXPECT_GE(stats.num_tree_rows, 16 * 19);
  for (const Heard& heard : all) EXPECT_EQ(heard.result->token_ids, Alone(heard.request));
}

TEST(Scheduling, ScoresOfPreemptedPromptsAreWhole) {
  EngineOptions options = Options();
  options.kv_memory = BytesOfBlocks(options, 14);
  options.prefill_chunk = 40;
  Engine engine(options);
  std::vector<GenerationRequest> requests(4, RequestOf(PromptOf(150), 60));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt_ids.back() = static_cast<int32_t>(20 + i);
    requests[i].num_logprobs = 0;
    requests[i].score_prompt = true;
  }
  const std::vector<GenerationResult> results = engine.GenerateBatch(requests);
  int32_t preempted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    preempted += results[i].num_preempted;
    const GenerationResult alone = Engine(Options()).Generate(requests[i]);
    EXPECT_EQ(results[i].token_ids, alone.token_ids);
    ASSERT_EQ(results[i].prompt_logprobs.size(), 149U);
    for (size_t k = 0; k < 149; ++k) {
      EXPECT_EQ(results[i].prompt_logprobs[k].chosen, alone.prompt_logprobs[k].chosen) << i << " " << k;
    }
  }
  EXPECT_GT(preempted, 0);
}

TEST(Scheduling, TreesThatAutoChoosesLeaveRoomForAll) {
  EngineOptions options = Options();
  options.draft = Golden("medusa/c_v2_k4_l1");
  options.tree = "auto";
  Engine engine(options);
  std::vector<GenerationRequest> requests(40, RequestOf(PromptOf(20), 60));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].prompt_ids.back() = static_cast<int32_t>(20 + i);
  const std::vector<GenerationResult> results = engine.GenerateBatch(requests);
  size_t most = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    most = std::max(most, results[i].num_emitted.size());
    EXPECT_EQ(results[i].token_ids, Alone(requests[i])) << i;
  }
  EXPECT_LE(engine.stats().num_steps, static_cast<int64_t>(most) + 8) << "nobody waits for rows that nobody uses";
}

TEST(Scheduling, WhoComesWhileAPrefixIsComputedWaitsForIt) {
  EngineOptions options = Options();
  options.prefill_chunk = 16;
  Engine engine(options);
  std::vector<GenerationRequest> requests;
  for (int32_t i = 0; i < 4; ++i) {
    requests.push_back(RequestOf(PromptOf(100), 20));
    requests.back().prompt_ids.push_back(10 + i);
    requests.back().cache_scope = i < 3 ? "a" : "b";
  }
  const std::vector<GenerationResult> results = engine.GenerateBatch(requests);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(results[i].token_ids, Alone(requests[i])) << i;
    EXPECT_EQ(results[i].num_reused, i == 1 || i == 2 ? 96 : 0) << i;
  }
}

TEST(Scheduling, WhatACallbackSubmitsIsRunToo) {
  Engine engine(Options());
  const GenerationRequest request = RequestOf(PromptOf(20), 10);
  std::vector<Tokens> texts;
  const auto keep = [&](const GenerationResult& done) { texts.push_back(done.token_ids); };
  engine.Submit(request, {.on_done = [&](const GenerationResult& done) {
                  keep(done);
                  engine.Submit(request, {.on_done = [&](const GenerationResult& next) {
                                  keep(next);
                                  throw std::runtime_error("lost");
                                }});
                }});
  while (engine.Step()) {
  }
  EXPECT_EQ(texts, (std::vector<Tokens>{Alone(request), Alone(request)}));
  EngineOptions options = Options();
  options.max_running = 0;
  EXPECT_THROW(Engine{options}, UserError);
}

// Many that share a long beginning, in a pool that is too small for all: shared blocks are not free when one goes.
TEST(Scheduling, SharersArePreemptedToo) {
  EngineOptions options = Options();
  options.kv_memory = BytesOfBlocks(options, 12);
  options.prefill_chunk = 128;
  Engine engine(options);
  std::vector<GenerationRequest> requests;
  for (int32_t i = 0; i < 6; ++i) {
    requests.push_back(i == 0 ? RequestOf(PromptOf(200, 5), 20) : RequestOf(PromptOf(100), 60 + 10 * i));
    if (i > 0) requests.back().cache_scope = "a";
    requests.back().lookup = {.max_tokens = 40, .min_match = 1};
  }
  const std::vector<GenerationResult> results = engine.GenerateBatch(requests);
  int32_t preempted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_FALSE(results[i].error);
    EXPECT_EQ(results[i].token_ids, Alone(requests[i])) << i;
    preempted += results[i].num_preempted;
  }
  EXPECT_GT(preempted, 0);
}

TEST(Scheduling, ARequestBoundsItsTrees) {
  Engine engine(Options());
  for (const char* tree : {"[[0],[1],[0,0]]", "auto"}) {
    for (const int32_t nodes : {1, 2}) {
      GenerationRequest request = RequestOf(PromptOf(20), 40);
      request.tree = tree;
      request.max_nodes = nodes;
      request.lookup = {.max_tokens = 5, .min_match = 1};
      const GenerationResult result = engine.Generate(request);
      EXPECT_EQ(result.token_ids, Alone(request));
      EXPECT_GT(result.num_drafted, 0);
      EXPECT_LE(result.num_drafted, nodes * static_cast<int64_t>(result.num_emitted.size()));
    }
  }
}

// Each weight is read once for all sequences of a step, the prefix layer's too.
TEST(Scheduling, EightEqualRequestsReadTheHeadsAsOftenAsOne) {
  uint64_t bytes[2] = {};
  for (const bool many : {false, true}) {
    std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(Options());
    const draft::Drafter& drafter = *loaded->drafter;
    Engine engine(std::move(loaded));
    const std::vector<GenerationRequest> requests(many ? 8 : 1, RequestOf(PromptOf(20), 40));
    for (const GenerationResult& result : engine.GenerateBatch(requests)) {
      EXPECT_EQ(result.token_ids, Alone(requests.front()));
    }
    bytes[many ? 1 : 0] = drafter.bytes_read();
  }
  EXPECT_GT(bytes[0], 0U);
  EXPECT_EQ(bytes[1], bytes[0]);
}

}  // namespace
}  // namespace hydrant::test::scheduling_test
