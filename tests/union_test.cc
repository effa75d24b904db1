// SPDX-License-Identifier: Apache-2.0
// Several drafters together: the text is plain decoding's, and a step gives no fewer tokens than one of them would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/eagle_folder.h"
#include "tests/golden_case.h"
#include "tests/test_data.h"

namespace hydrant::test::union_test {
namespace {

std::string Golden(const std::string& name) { return SourceDir() + "/tests/golden/" + name; }

std::vector<GenerationRequest> Requests(const std::string& tree) {
  std::vector<GenerationRequest> requests(5);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int32_t t = 0; t < 70; ++t) requests[i].prompt_ids.push_back(3 + (t * 37) % 500);
    requests[i].prompt_ids.push_back(static_cast<int32_t>(10 + i));
    requests[i].stop = {.max_tokens = 30, .ignore_eos = true, .stop = {}};
    requests[i].cache_scope = "all";
    requests[i].tree = tree;
    if (i % 2 == 1) requests[i].sampling = {.temperature = 0.8F, .seed = i};
  }
  return requests;
}

// In a KV cache that is too small for all, with beginnings that requests share.
// Returns how often one was preempted.
int32_t ExpectPlainTexts(const std::vector<std::string>& drafts, const std::string& tree) {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.draft = drafts.front();
  options.more_drafts.assign(drafts.begin() + 1, drafts.end());
  options.load_tokenizer = false;
  const uint64_t block = [&] {
    const EngineInfo info = Engine(options).info();
    return info.kv_memory / static_cast<uint64_t>(info.kv_positions / 32);
  }();
  options.kv_memory = 9 * block;
  Engine engine(options);
  std::vector<GenerationRequest> requests = Requests(tree);
  int32_t preempted = 0, reused = 0;
  const std::vector<GenerationResult> results = engine.GenerateBatch(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].error, nullptr);
    preempted += results[i].num_preempted;
    reused += results[i].num_reused;
    requests[i].use_drafter = false;
    EXPECT_EQ(results[i].token_ids, engine.Generate(requests[i]).token_ids) << i;
  }
  EXPECT_GT(reused, 0);
  return preempted;
}

// Every pair has other memories: a hidden state, a prefix layer, layers that lag one row behind, a whole model.
TEST(UnionTest, TextsArePlainDecodings) {
  const TempDir first, third;
  const std::string eagle1 = EagleFolder(false).Write(first), eagle3 = EagleFolder(true).Write(third);
  int32_t preempted = ExpectPlainTexts({Golden("medusa/a_k3_l2"), Golden("hydra/mlp_k3_l2")}, "[[0,0,0],[0,1],[1,0]]");
  preempted += ExpectPlainTexts({Golden("hydra/prefix_mlp_k2_l1"), eagle3}, "[[0,0],[1]]");
  preempted += ExpectPlainTexts({eagle1, Golden("base_mha"), eagle3}, "[[0,0,0,0],[1]]");
  preempted += ExpectPlainTexts({Golden("base_mha"), eagle1}, "dynamic");
  preempted += ExpectPlainTexts({Golden("base_mha"), Golden("hydra/prefix_mlp_k2_l1")}, "auto");
  EXPECT_GT(preempted, 0);
}

EngineOptions OptionsFor(const std::string& draft, const std::string& other) {
  EngineOptions options;
  options.model = Golden("base_mha");
  options.draft = draft;
  options.more_drafts = {other};
  options.load_tokenizer = false;
  return options;
}

// A model that drafts for itself is always right, so every step gives its whole chain, whatever stands beside it.
TEST(UnionTest, WhatOneOfThemKnowsIsDrafted) {
  const std::string own = Golden("base_mha"), medusa = Golden("medusa/a_k3_l2");
  for (const bool own_first : {true, false}) {
    Engine engine(own_first ? OptionsFor(own, medusa) : OptionsFor(medusa, own));
    EXPECT_EQ(engine.info().drafter, own_first ? "draft model + medusa" : "medusa + draft model");
    GenerationRequest request;
    request.prompt_ids = {1, 382, 395, 261, 369, 478, 373, 278, 261};
    request.stop = {.max_tokens = 51, .ignore_eos = true, .stop = {}};
    request.tree = "[[0,0,0,0]]";
    EXPECT_EQ(engine.Generate(request).num_emitted, std::vector<int32_t>(10, 5));
    // Three nodes are two for the first and one for the second.
    request.max_nodes = 3;
    const std::vector<int32_t> emitted = engine.Generate(request).num_emitted;
    EXPECT_EQ(std::ranges::min(emitted), own_first ? 3 : 2);
  }
}

TEST(UnionTest, WhatCannotBeMergedIsRefused) {
  const std::string own = Golden("base_mha"), medusa = Golden("medusa/a_k3_l2");
  EXPECT_THAT([&] { Engine engine(OptionsFor(own, own)); },
              testing::ThrowsMessage<UserError>(testing::HasSubstr("twice")));
  Engine engine(OptionsFor(own, medusa));
  GenerationRequest request;
  request.prompt_ids = {1, 2};
  request.tree = "dynamic";
  EXPECT_THAT([&] { engine.Generate(request); }, testing::ThrowsMessage<UserError>(testing::HasSubstr("given shape")));
  request.tree = "chain";
  request.sampling.temperature = 1;
  request.accept.rule = AcceptRule::kRejection;
  EXPECT_THAT([&] { engine.Generate(request); },
              testing::ThrowsMessage<UserError>(testing::HasSubstr("draft together")));
}

}  // namespace
}  // namespace hydrant::test::union_test
