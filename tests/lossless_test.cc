// SPDX-License-Identifier: Apache-2.0
// The promise: for every drafter, tree, sampling and CPU target, the output equals plain decoding token for token with
// the same seed, alone and in a batch, whatever the threads and prompt chunks; and more than one token comes out of a
// step.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "draft/lookup.h"
#include "hydrant/engine.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "tests/lossless_util.h"

namespace hydrant::test::lossless_test {
namespace {

// Up to the end of the context, where chains must be cut: this model comes to repeat itself long before.
TEST(Lossless, LookupsUpToTheContextsEndWithHeadsAndWithout) {
  for (const bool with_heads : {false, true}) {
    EngineOptions options;
    options.model = Embedded("tale-14m");
    if (with_heads) options.draft = Embedded("tale-14m-hydra-pp");
    options.weights = "w8a8";
    options.load_tokenizer = false;
    Engine engine(options);
    GenerationRequest request;
    request.prompt_ids = TalePrompt();
    request.stop.max_tokens = 100000;
    request.stop.ignore_eos = true;
    request.use_drafter = false;
    const GenerationResult plain = engine.Generate(request);
    EXPECT_EQ(plain.num_lookup_steps, 0);
    request.use_drafter = true;
    request.lookup = {.max_tokens = 64, .min_match = 2};
    const GenerationResult result = engine.Generate(request);
    EXPECT_EQ(result.token_ids, plain.token_ids);
    EXPECT_EQ(result.finish_reason, FinishReason::kContext);
    EXPECT_GT(result.num_looked_up_accepted, 0);
    EXPECT_LE(result.num_looked_up_accepted, result.num_looked_up);
    EXPECT_LE(result.num_looked_up, result.num_drafted);
    EXPECT_LT(result.num_emitted.size(), plain.num_emitted.size());
    // No row beyond the context: the last step yields one token too many at most, its bonus.
    const int32_t emitted = std::accumulate(result.num_emitted.begin(), result.num_emitted.end(), 1);
    EXPECT_LE(emitted, static_cast<int32_t>(result.token_ids.size()) + 1);
  }
}

// Heads draft the same whether they absorbed a step's rows at once, or later together with those of looked-up steps: a
// step that begins at a token yields as many as the first step of a request whose prompt ends before that token.
TEST(Lossless, HeadsThatWereNotAskedDraftAsIfTheyHadBeen) {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.draft = Golden("hydra/prefix_mlp_k2_l1");
  options.tree = "[[0],[0,0]]";
  options.load_tokenizer = false;
  Engine engine(options);
  GenerationRequest request;
  request.prompt_ids = Prompt();
  request.stop.max_tokens = 120;
  request.stop.ignore_eos = true;
  request.lookup = {.max_tokens = 4, .min_match = 2};
  const GenerationResult result = engine.Generate(request);
  draft::TokenLookup lookup(request.lookup);
  lookup.Append(request.prompt_ids);
  GenerationRequest fresh = request;
  fresh.lookup = {};
  fresh.stop.max_tokens = 8;
  int32_t by_heads_after_lookup = 0;
  bool was_looked_up = false;
  size_t root = 0;  // of the step, in token_ids
  lookup.Append(std::span(result.token_ids).first(1));
  for (size_t step = 0; root + 8 < result.token_ids.size(); ++step) {
    const bool looked_up = !lookup.Find(request.lookup.max_tokens).empty();
    if (!looked_up) {
      const GenerationResult first = engine.Generate(fresh);
      EXPECT_EQ(result.num_emitted[step], first.num_emitted[0]) << step;
      by_heads_after_lookup += was_looked_up ? 1 : 0;
    }
    was_looked_up = looked_up;
    const auto emitted = static_cast<size_t>(result.num_emitted[step]);
    lookup.Append(std::span(result.token_ids).subspan(root + 1, emitted));
    fresh.prompt_ids.insert(fresh.prompt_ids.end(), result.token_ids.begin() + static_cast<std::ptrdiff_t>(root),
                            result.token_ids.begin() + static_cast<std::ptrdiff_t>(root + emitted));
    root += emitted;
  }
  EXPECT_GT(by_heads_after_lookup, 0);
}

TEST(Lossless, LookupsWithTypicalAcceptanceAreRefused) {
  GenerationRequest request;
  request.accept.rule = AcceptRule::kTypical;
  request.lookup.max_tokens = 4;
  EXPECT_THROW(ValidateRequest(request), UserError);
  request.accept.rule = AcceptRule::kExact;
  EXPECT_NO_THROW(ValidateRequest(request));
  for (const LookupOptions& wrong : {LookupOptions{.max_tokens = 65}, LookupOptions{.max_tokens = -1},
                                     LookupOptions{.max_tokens = 4, .min_match = -1}}) {
    request.lookup = wrong;
    EXPECT_THROW(ValidateRequest(request), UserError);
  }
}

TEST(Lossless, TheEmbeddedModelWithItsHeads) {
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    // Minutes in plain C++, which amx-twin is too without AVX-512; the small models above cover it.
    if (table->matmul == kernels::PortableKernels().matmul) continue;
    ExpectLossless({.base = Embedded("tale-14m"),
                    .heads = Embedded("tale-14m-hydra-pp"),
                    .prompt = TalePrompt(),
                    .num_tokens = 64},
                   table->name);
  }
}

EngineOptions OptionsFor(const Formats& formats) {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.draft = Golden("hydra/prefix_mlp_k2_l1");
  options.weights = formats.base;
  options.head_weights = formats.heads;
  options.load_tokenizer = false;
  return options;
}

// Requests of different lengths, seeds and rules in one batch give what each gives alone.
void ExpectBatchGivesWhatEachGivesAlone(const EngineOptions& options, int32_t tokens_more_each) {
  Engine engine(options);
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 11; ++i) {
    GenerationRequest request;
    request.prompt_ids = Prompt();
    request.prompt_ids.resize(2 + i);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = i;
    request.stop.max_tokens = 10 + tokens_more_each * static_cast<int32_t>(i);
    request.use_drafter = i % 4 != 3;
    if (i == 5) request.accept.rule = AcceptRule::kTypical;
    if (i % 5 == 1) request.lookup = {.max_tokens = 2 + static_cast<int32_t>(i), .min_match = 1};
    if (i % 3 == 2) request.draft_p_min = 0.01F * static_cast<float>(i);
    requests.push_back(request);
  }
  const std::vector<GenerationResult> together = engine.GenerateBatch(requests);
  ASSERT_EQ(together.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerationResult alone = engine.Generate(requests[i]);
    EXPECT_EQ(together[i].token_ids, alone.token_ids) << i;
    EXPECT_EQ(together[i].num_emitted, alone.num_emitted) << i;
    EXPECT_EQ(together[i].finish_reason, alone.finish_reason) << i;
  }
}

TEST(Lossless, ABatchGivesWhatEachRequestGivesAlone) {
  for (const Formats& formats : EveryFormat()) {
    SCOPED_TRACE(NameOf(formats));
    EngineOptions options = OptionsFor(formats);
    options.tree = "[[0],[1],[2],[0,0],[0,1],[1,0]]";
    ExpectBatchGivesWhatEachGivesAlone(options, 5);
  }
}

// Wide enough for 4 bits in every layer, which the small model is not.
TEST(Lossless, ABatchOfTheEmbeddedModelGivesWhatEachRequestGivesAlone) {
  for (const Formats& formats : EveryFormat()) {
    if (!IsPacked(formats)) continue;  // floats do not ask for width
    SCOPED_TRACE(NameOf(formats));
    EngineOptions options = OptionsFor(formats);
    options.model = Embedded("tale-14m");
    options.draft = Embedded("tale-14m-hydra-pp");
    options.tree = "[[0], [0, 0], [1]]";
    ExpectBatchGivesWhatEachGivesAlone(options, 1);
  }
}

// Whatever is chosen, and however long heads wait for what was committed.
TEST(Lossless, AutoTreesChangeTheSpeedNotTheText) {
  EngineOptions options = OptionsFor({});
  options.tree = "auto";
  Engine engine(options);
  std::vector<GenerationRequest> requests;
  std::vector<std::vector<int32_t>> plain;
  for (uint64_t i = 0; i < 6; ++i) {
    GenerationRequest request;
    request.prompt_ids = Prompt();
    request.prompt_ids.resize(2 + i);
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = i;
    request.stop = {.max_tokens = 120, .ignore_eos = true, .stop = {}};
    if (i == 4) request.lookup = {.max_tokens = 4, .min_match = 1};
    if (i == 5) request.draft_p_min = 0.1F;
    requests.push_back(request);
    request.use_drafter = false;
    plain.push_back(engine.Generate(request).token_ids);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerationResult alone = engine.Generate(requests[i]);
    EXPECT_EQ(alone.token_ids, plain[i]) << i;
    EXPECT_TRUE(alone.tree.is_auto);
    EXPECT_GE(alone.tree.tried.size(), 2U) << i;
    EXPECT_FALSE(alone.tree.why.empty());
  }
  const std::vector<GenerationResult> together = engine.GenerateBatch(requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i].token_ids, plain[i]) << i;
}

// Its text depends on the tree, so it would depend on measured times.
TEST(Lossless, TypicalAcceptanceKeepsAFixedTree) {
  GenerationRequest request;
  request.prompt_ids = Prompt();
  request.stop.max_tokens = 20;
  request.sampling.temperature = 0.7F;
  request.accept.rule = AcceptRule::kTypical;
  EngineOptions options = OptionsFor({});
  const GenerationResult by_default = Engine(options).Generate(request);
  EXPECT_EQ(by_default.tree.chosen.name, "mc_sim_7b_63");
  EXPECT_FALSE(by_default.tree.is_auto);
  options.tree = "auto";
  Engine refuses(options);
  EXPECT_THROW(refuses.Generate(request), UserError);
  request.accept.rule = AcceptRule::kExact;
  EXPECT_TRUE(refuses.Generate(request).tree.is_auto);
}

TEST(Lossless, AnotherTreeChangesTheStepsNotTheText) {
  EngineOptions options = OptionsFor({});
  options.tree = "[[0],[0,0],[1]]";
  Engine engine(options);
  GenerationRequest request;
  request.prompt_ids = Prompt();
  request.stop = {.max_tokens = 60, .ignore_eos = true, .stop = {}};
  const GenerationResult first = engine.Generate(request);
  EXPECT_EQ(first.tree.chosen.nodes, 3);
  GenerationRequest other = request;
  other.tree = "[[0]]";
  const GenerationResult chain = engine.Generate(other);
  EXPECT_EQ(chain.tree.chosen.nodes, 1);
  EXPECT_EQ(chain.tree.chosen.choices, "[[0]]");
  EXPECT_EQ(chain.token_ids, first.token_ids);
  EXPECT_NE(chain.num_emitted, first.num_emitted);
  EXPECT_LE(*std::max_element(chain.num_emitted.begin(), chain.num_emitted.end()), 2);
  // What does not fit is refused, and the engine goes on.
  other.tree = "[[0],[0,0],[0,0,0]]";  // three heads
  EXPECT_THROW(engine.Generate(other), UserError);
  other.tree = "chian";
  EXPECT_THROW(engine.Generate(other), UserError);
  other.tree = "auto";
  const GenerationResult automatic = engine.Generate(other);
  EXPECT_TRUE(automatic.tree.is_auto);
  EXPECT_EQ(automatic.token_ids, first.token_ids);
  EXPECT_EQ(engine.Generate(request).num_emitted, first.num_emitted);
  EngineOptions plain;
  plain.model = Golden("base_mha");
  plain.load_tokenizer = false;
  other.tree = "[[0]]";
  EXPECT_THROW(Engine(plain).Generate(other), UserError);
}

TEST(Lossless, EveryKvTypeIsLosslessInEveryFormat) {
  for (const Formats& formats : EveryFormat()) {
    for (const char* kv_type : {"f32", "bf16", "f16"}) {
      EngineOptions options = OptionsFor(formats);
      options.kv_type = kv_type;
      Engine engine(options);
      GenerationRequest request;
      request.prompt_ids = Prompt();
      request.stop.max_tokens = 100;
      request.stop.ignore_eos = true;
      const GenerationResult result = engine.Generate(request);
      request.use_drafter = false;
      EXPECT_EQ(result.token_ids, engine.Generate(request).token_ids) << kv_type << " " << NameOf(formats);
    }
  }
}

// Near the context limit trees are cut, never the text: same tokens and the same end as plain decoding.
TEST(Lossless, TheContextLimitCutsTreesNotText) {
  for (const Formats& formats : EveryFormat()) {
    SCOPED_TRACE(NameOf(formats));
    Engine engine(OptionsFor(formats));
    const int32_t limit = engine.info().max_positions;
    for (int32_t room = 0; room < 7; ++room) {
      GenerationRequest request;
      for (int32_t i = 0; i < limit - room; ++i)
        request.prompt_ids.push_back(Prompt()[static_cast<size_t>(i) % Prompt().size()]);
      request.stop.max_tokens = 1000;
      request.stop.ignore_eos = true;
      const GenerationResult result = engine.Generate(request);
      request.use_drafter = false;
      const GenerationResult plain = engine.Generate(request);
      EXPECT_EQ(result.token_ids, plain.token_ids);
      EXPECT_EQ(result.finish_reason, FinishReason::kContext);
      // Prompt and reply together fill the context; the prompt's own forward always gives one token.
      EXPECT_EQ(plain.token_ids.size(), static_cast<size_t>(std::max(room, 1)));
    }
    GenerationRequest request;
    request.prompt_ids.assign(static_cast<size_t>(limit) + 1, 5);
    EXPECT_THROW(engine.Generate(request), UserError);
  }
}

}  // namespace
}  // namespace hydrant::test::lossless_test
