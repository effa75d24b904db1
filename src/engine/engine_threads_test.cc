// SPDX-License-Identifier: Apache-2.0
// One engine and several threads; also run with the thread sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "hydrant/engine.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::engine_threads_test {
namespace {

using testing::HasSubstr;

Engine Tale() {
  EngineOptions options;
  options.model = test::SourceDir() + "/models/tale-14m";
  options.draft = test::SourceDir() + "/models/tale-14m-hydra-pp";
  options.threads = 2;
  return Engine(options);
}

GenerationRequest Of(const Engine& engine, const std::string& text, int32_t max_tokens) {
  GenerationRequest request;
  request.prompt_ids = engine.Tokenize(text, true, true);
  request.stop = {.max_tokens = max_tokens, .ignore_eos = true, .stop = {}};
  return request;
}

TEST(EngineThreadsTest, TwoThreadsOnOneEngineGetTheTextsThatTheyGetAlone) {
  Engine engine = Tale();
  const GenerationRequest requests[] = {Of(engine, "Once upon a time", 20), Of(engine, "The dog and the big", 30)};
  std::vector<std::string> expected, found[2];
  for (const GenerationRequest& request : requests) expected.push_back(engine.Generate(request).text);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2; ++i) found[t].push_back(engine.Generate(requests[t]).text);
    });
  }
  threads.emplace_back([&] {
    for (const char* tree : {"chain", "mc_sim_7b_63", "chain"}) {
      GenerationRequest request = requests[0];
      request.tree = tree;
      EXPECT_EQ(engine.Generate(request).tree.chosen.name, tree);
    }
  });
  threads.emplace_back([&] {
    for (int i = 0; i < 20; ++i) {
      const std::vector<int32_t> ids = engine.Tokenize("Once upon a time", true, true);
      EXPECT_EQ(ids, requests[0].prompt_ids);
      EXPECT_THAT(engine.Detokenize(ids, true), HasSubstr("Once upon a time"));
      const ChatMessage message{"user", "Hello"};
      std::string prompt;
      static_cast<void>(engine.RenderChat(std::span(&message, 1), "vicuna", &prompt));
      EXPECT_THAT(prompt, HasSubstr("Hello"));
    }
  });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < 2; ++t) EXPECT_EQ(found[t], std::vector<std::string>(2, expected[t]));
}

TEST(EngineThreadsTest, ACallbackThatUsesItsOwnEngineIsRefusedAndTheEngineGoesOn) {
  Engine engine = Tale();
  const GenerationRequest request = Of(engine, "Once upon a time", 8);
  int refused = 0;
  const auto expect_refused = [&refused](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "not refused";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("callback"));
      ++refused;
    }
  };
  const GenerationResult result = engine.Generate(request, [&](const Emission&) {
    if (refused > 0) return true;
    expect_refused([&] { static_cast<void>(engine.Generate(request)); });
    expect_refused([&] { static_cast<void>(engine.GenerateBatch(std::span(&request, 1))); });
    expect_refused([&] { engine.Step(); });
    EXPECT_EQ(engine.Tokenize("Once upon a time", true, true), request.prompt_ids);  // these are for everyone
    EXPECT_EQ(engine.info().num_heads, 4);
    return true;
  });
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(result.text, engine.Generate(request).text);
}

TEST(EngineThreadsTest, ACallbackMayUseAnotherEngine) {
  Engine engine = Tale(), other = Tale();
  const GenerationRequest request = Of(engine, "Once upon a time", 8);
  std::string inner;
  const GenerationResult outer = engine.Generate(request, [&](const Emission&) {
    if (inner.empty()) inner = other.Generate(request).text;
    return true;
  });
  EXPECT_EQ(inner, outer.text);
}

TEST(EngineThreadsTest, ACallbackThatThrowsLeavesTheEngineFree) {
  Engine engine = Tale();
  const GenerationRequest request = Of(engine, "Once upon a time", 8);
  EXPECT_THROW(engine.Generate(request, [](const Emission&) -> bool { throw 1; }), int);
  std::thread([&] { EXPECT_EQ(engine.Generate(request).token_ids.size(), 8U); }).join();
}

}  // namespace
}  // namespace hydrant::engine_threads_test
