// SPDX-License-Identifier: Apache-2.0
// Several drafters together: a step gives no fewer tokens than one of them would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/head_folders.h"
#include "tests/lossless_util.h"

namespace hydrant::test::union_test {
namespace {

EngineOptions OptionsFor(const std::string& draft, const std::string& other) {
  EngineOptions options = OptionsOf(draft);
  options.more_drafts = {other};
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
