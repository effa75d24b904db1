// SPDX-License-Identifier: Apache-2.0
// Parity of LookupRule::kFirst with transformers' prompt lookup, chain for chain.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "draft/lookup_drafter.h"
#include "hydrant/engine.h"
#include "tests/golden_case.h"
#include "tests/test_data.h"

namespace hydrant::test::golden_lookup_test {
namespace {

base::Json Golden() { return base::ReadJsonFile(SharedDir() + "/golden/assisted/prompt_lookup.json"); }

GenerationRequest RequestFor(const base::Json& golden, const base::Json& one) {
  GenerationRequest request;
  request.prompt_ids = Ids(one.at("prompt_ids"));
  request.stop.max_tokens = golden.at("max_new_tokens").get<int32_t>();
  request.lookup = {.max_tokens = golden.at("num_output_tokens").get<int32_t>(),
                    .rule = LookupRule::kFirst,
                    .max_match = golden.at("max_matching_ngram_size").get<int32_t>()};
  return request;
}

// What the drafter gives at each length. Their first step drafts from the prompt alone; ours has always a root, so that
// the prompt's last token counts as the reply's first here.
std::vector<std::vector<int32_t>> Chains(GenerationRequest request, const base::Json& one) {
  std::vector<int32_t> output = Ids(one.at("output_ids"));
  output.insert(output.begin(), request.prompt_ids.back());
  request.prompt_ids.pop_back();
  ++request.stop.max_tokens;
  draft::LookupDrafter drafter;
  const auto state = drafter.NewState(request);
  std::vector<std::vector<int32_t>> chains;
  for (const base::Json& step : one.at("steps")) {
    tree::TokenTree tree;
    draft::ProposeInput input;
    input.state = state.get();
    input.prompt = request.prompt_ids;
    input.output = std::span(output).first(step.at("length").get<size_t>() - request.prompt_ids.size());
    input.budget = {.max_nodes = 64, .max_depth = 64};
    input.tree = &tree;
    drafter.Propose(std::span(&input, 1));
    EXPECT_EQ(tree.tokens.front(), input.output.back());
    chains.emplace_back(tree.tokens.begin() + 1, tree.tokens.end());
  }
  return chains;
}

TEST(GoldenLookup, ChainsAreThoseOfTransformers) {
  HYDRANT_NEED_SHARED();
  const base::Json golden = Golden();
  size_t steps = 0;
  for (const base::Json& one : golden.at("cases")) {
    GenerationRequest request = RequestFor(golden, one);
    std::vector<std::vector<int32_t>> theirs;
    for (const base::Json& step : one.at("steps")) theirs.push_back(Ids(step.at("chain")));
    EXPECT_EQ(Chains(request, one), theirs);
    request.stop.max_tokens = 1000;
    theirs.back() = Ids(one.at("steps").back().at("chain_without_length_limit"));
    EXPECT_EQ(Chains(request, one), theirs);
    steps += theirs.size();
  }
  EXPECT_EQ(steps, 141U);
}

// Their first step drafts from the prompt alone. It gives one token in each case, the root that ours begins with.
TEST(GoldenLookup, StepsAcceptWhatTheyAcceptInTransformers) {
  HYDRANT_NEED_SHARED();
  const base::Json golden = Golden();
  EngineOptions options;
  options.model = SharedDir() + "/models/stories260K-hf";
  options.load_tokenizer = false;
  Engine engine(options);
  for (const base::Json& one : golden.at("cases")) {
    GenerationResult result = engine.Generate(RequestFor(golden, one));
    EXPECT_EQ(result.token_ids, Ids(one.at("output_ids")));
    std::vector<int32_t> theirs = Ids(one.at("num_emitted"));
    ASSERT_EQ(theirs.front(), 1);
    theirs.erase(theirs.begin());
    // Theirs is cut at the last token, ours tells what was verified.
    result.num_emitted.back() = std::min(result.num_emitted.back(), theirs.back());
    EXPECT_EQ(result.num_emitted, theirs);
  }
}

}  // namespace
}  // namespace hydrant::test::golden_lookup_test
