// SPDX-License-Identifier: Apache-2.0
#include "hydrant/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::engine_test {
namespace {

Engine Tale(int32_t prefill_chunk = 0) {
  EngineOptions options;
  options.model = test::SourceDir() + "/models/tale-14m";
  options.draft = test::SourceDir() + "/models/tale-14m-hydra-pp";
  options.prefill_chunk = prefill_chunk;
  return Engine(options);
}

GenerationRequest About(Engine& engine, const std::string& text) {
  GenerationRequest request;
  request.prompt_ids = engine.Tokenize(text, true, true);
  request.stop.max_tokens = 100;
  request.stop.ignore_eos = true;
  return request;
}

// Whoever wants to stop is asked between the parts of a prompt, and not once more when it has said so.
TEST(EngineTest, ALongPromptCanBeStopped) {
  Engine engine = Tale(4);
  int calls = 0;
  const GenerationResult result =
      engine.Generate(About(engine, "Once upon a time there was a little fox who liked to run in the big wood."),
                      [&](const Emission& emission) {
                        EXPECT_TRUE(emission.token_ids.empty());
                        return ++calls < 2;
                      });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(result.token_ids.empty());
}

// By the flag that a signal handler may set: loading, a prompt, a step.
TEST(EngineTest, TheStopFlagEndsWhateverRuns) {
  std::atomic<bool> stop = true;
  EngineOptions options;
  options.model = test::SourceDir() + "/models/tale-14m";
  options.draft = test::SourceDir() + "/models/tale-14m-hydra-pp";
  options.stop = &stop;
  EXPECT_THROW(Engine{options}, Stopped);
  stop = false;
  Engine engine(options);
  const GenerationRequest request = About(engine, "Once upon a time");
  const std::string whole = engine.Generate(request).text;
  stop = true;
  const GenerationResult nothing = engine.Generate(request);
  EXPECT_EQ(nothing.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(nothing.token_ids.empty());
  stop = false;
  int calls = 0;
  const GenerationResult part = engine.Generate(request, [&](const Emission&) { return !(stop = ++calls == 3); });
  EXPECT_EQ(part.finish_reason, FinishReason::kCancelled);
  EXPECT_GT(part.token_ids.size(), 0U);
  EXPECT_LT(part.token_ids.size(), 20U);
  EXPECT_EQ(engine.GenerateBatch(std::span(&request, 1)).front().finish_reason, FinishReason::kCancelled);
  stop = false;
  EXPECT_EQ(engine.Generate(request).text, whole);  // nothing is left of what was stopped
}

// Also while tokens wait for what may become a stop string.
TEST(EngineTest, HeldBackTokensCanBeStopped) {
  Engine engine = Tale();
  GenerationRequest request = About(engine, "Once upon a time");
  const GenerationResult whole = engine.Generate(request);
  request.stop.stop = {whole.text + "!"};
  int calls = 0;
  const GenerationResult result = engine.Generate(request, [&](const Emission& emission) {
    EXPECT_TRUE(emission.token_ids.empty());
    return ++calls < 3;
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_LT(result.token_ids.size(), 20U);
  EXPECT_TRUE(whole.text.starts_with(result.text)) << result.text;
}

#if defined(__x86_64__)
TEST(EngineTest, TheCallersFloatModeChangesNothing) {
  const auto sample = [] {
    EngineOptions options;
    options.model = test::SourceDir() + "/models/tale-14m";
    options.draft = test::SourceDir() + "/models/tale-14m-hydra-pp";
    options.weights = "w4a8";
    Engine engine(options);
    GenerationRequest request = About(engine, "Once upon a time");
    request.sampling.temperature = 1;
    request.sampling.top_p = 0.9F;
    request.stop.max_tokens = 400;
    return engine.Generate(request).token_ids;
  };
  const std::vector<int32_t> expected = sample();
  constexpr unsigned kRoundsUp = 0x1f80 | 0x4000;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kRoundsUp);
  const std::vector<int32_t> found = sample();
  _mm_setcsr(before);
  EXPECT_EQ(found, expected);
}
#endif

TEST(EngineTest, AStopStringIsWholeCharacters) {
  GenerationRequest request;
  request.stop.stop = {"\xF0\x9F\xA6\x8A"};
  ValidateRequest(request);
  request.stop.stop = {"\xBD"};
  EXPECT_THROW(ValidateRequest(request), UserError);
}

TEST(EngineTest, LengthsOfLookupsAreCheckedByName) {
  const auto refusal = [](const LookupOptions& lookup) -> std::string {
    GenerationRequest request;
    request.lookup = lookup;
    try {
      ValidateRequest(request);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.min_match = 64}), "");
  EXPECT_EQ(refusal({.max_match = 1}), "");
  EXPECT_EQ(refusal({.min_match = 64, .rule = LookupRule::kFirst}), "");
  EXPECT_EQ(refusal({.min_match = 4, .max_match = 4}), "");
  EXPECT_THAT(refusal({.min_match = 65}), testing::StartsWith("LookupOptions::min_match is 65"));
  EXPECT_THAT(refusal({.max_match = 65}), testing::StartsWith("LookupOptions::max_match is 65"));
  EXPECT_THAT(refusal({.max_match = -1}), testing::StartsWith("LookupOptions::max_match is -1"));
  EXPECT_EQ(refusal({.min_match = 5, .max_match = 4}),
            "LookupOptions::max_match is 4, expected at least LookupOptions::min_match, 5");
}

// The first token too.
TEST(EngineTest, TypicalAcceptanceAtTemperatureZeroIsTheExactRule) {
  Engine engine = Tale();
  GenerationRequest request = About(engine, "the cat and the dog and the cat and the dog and the");
  request.sampling.repetition_penalty = 3;
  request.stop.max_tokens = 6;
  const GenerationResult exact = engine.Generate(request);
  request.accept.rule = AcceptRule::kTypical;
  for (const RootChoice root : {RootChoice::kSampled, RootChoice::kArgmax}) {
    request.accept.root = root;
    EXPECT_EQ(engine.Generate(request).token_ids, exact.token_ids);
  }
}

}  // namespace
}  // namespace hydrant::engine_test
