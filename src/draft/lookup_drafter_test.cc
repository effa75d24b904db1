// SPDX-License-Identifier: Apache-2.0
#include "draft/lookup_drafter.h"

#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <vector>

namespace hydrant::draft::lookup_drafter_test {
namespace {

using Tokens = std::vector<int32_t>;

// What is drafted behind the reply's first token.
Tokens Chain(LookupDrafter& drafter, const GenerationRequest& request, int32_t root) {
  const auto state = drafter.NewState(request);
  tree::TokenTree tree;
  const Tokens output = {root};
  ProposeInput input;
  input.state = state.get();
  input.prompt = request.prompt_ids;
  input.output = output;
  input.budget = {.max_nodes = 64, .max_depth = 64};
  input.tree = &tree;
  drafter.Propose(std::span(&input, 1));
  EXPECT_EQ(tree.source, tree.tokens.size() > 1 ? DraftSource::kLookup : DraftSource::kBase);
  return {tree.tokens.begin() + 1, tree.tokens.end()};
}

GenerationRequest RequestOf(Tokens prompt, LookupRule rule) {
  GenerationRequest request;
  request.prompt_ids = std::move(prompt);
  request.lookup = {.max_tokens = 3, .min_match = 1, .rule = rule};
  return request;
}

// transformers' rule. The other one drafts as many tokens as agree, those that end the reply among them.
TEST(LookupDrafterTest, TheFirstRuleDraftsUpToWhatEndsTheReply) {
  LookupDrafter drafter;
  drafter.SetEosTokenIds({7});
  GenerationRequest request = RequestOf({1, 2, 8, 7, 3}, LookupRule::kFirst);
  EXPECT_EQ(Chain(drafter, request, 1), (Tokens{2, 8}));
  request.stop.eos_token_ids = {8};
  EXPECT_EQ(Chain(drafter, request, 1), (Tokens{2}));
  EXPECT_EQ(Chain(drafter, request, 2), Tokens());
  request.stop.ignore_eos = true;
  EXPECT_EQ(Chain(drafter, request, 1), (Tokens{2, 8, 7}));
  request.stop.ignore_eos = false;
  request.lookup.rule = LookupRule::kLast;
  EXPECT_EQ(Chain(drafter, request, 2), (Tokens{8}));
}

TEST(LookupDrafterTest, TheFirstRuleDraftsNothingWhereOneMoreTokenIsWanted) {
  LookupDrafter drafter;
  GenerationRequest request = RequestOf({1, 2, 3}, LookupRule::kFirst);
  request.stop.max_tokens = 3;
  EXPECT_EQ(Chain(drafter, request, 1), (Tokens{2, 3, 1}));
  request.stop.max_tokens = 2;
  EXPECT_EQ(Chain(drafter, request, 1), Tokens());
  request.lookup.rule = LookupRule::kLast;
  EXPECT_EQ(Chain(drafter, request, 1), (Tokens{2}));
}

}  // namespace
}  // namespace hydrant::draft::lookup_drafter_test
