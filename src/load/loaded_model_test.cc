// SPDX-License-Identifier: Apache-2.0
#include "load/loaded_model.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "tests/test_data.h"

namespace hydrant::load::loaded_model_test {
namespace {

model::ModelConfig Config(int64_t hidden, int64_t inner, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  model::ModelConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = inner;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  return config;
}

TEST(LoadedModelTest, SmallModelsRunOnFewThreads) {
  const model::ModelConfig embedded = Config(256, 704, 4, 4, 64), large = Config(4096, 11008, 32, 32, 128);
  EXPECT_EQ(ThreadsFor(embedded, 1), 1);
  EXPECT_EQ(ThreadsFor(embedded, 2), 2);
  EXPECT_EQ(ThreadsFor(embedded, 64), 4);
  EXPECT_EQ(ThreadsFor(large, 64), 64);
  EXPECT_EQ(ThreadsFor(Config(2048, 8192, 32, 8, 64), 64), 64);
  EXPECT_EQ(ThreadsFor(Config(16, 32, 1, 1, 16), 64), 1);
}

TEST(LoadedModelTest, LookupsKnowTheModelsEndOfSequence) {
  EngineOptions options;
  options.model = test::SourceDir() + "/tests/golden/base_mha";
  const auto loaded = LoadModel(options);
  ASSERT_FALSE(loaded->info.eos_token_ids.empty());
  const int32_t eos = loaded->info.eos_token_ids.front();
  GenerationRequest request;
  request.prompt_ids = {100, 101, eos, 102};
  request.lookup = {.max_tokens = 9, .rule = LookupRule::kFirst};
  const auto state = loaded->lookup.NewState(request);
  tree::TokenTree tree;
  const std::vector<int32_t> output = {100};
  draft::ProposeInput input;
  input.state = state.get();
  input.prompt = request.prompt_ids;
  input.output = output;
  input.budget = {.max_nodes = 64, .max_depth = 64};
  input.tree = &tree;
  loaded->lookup.Propose(std::span(&input, 1));
  EXPECT_EQ(tree.tokens, (std::vector<int32_t>{100, 101}));
}

// Heads of the golden model that use its lm head, and one of their own once they draft a part of the vocabulary.
TEST(LoadedModelTest, BytesOfHeadsThatDraftAPartOfTheVocabulary) {
  const test::TempDir dir;
  for (const char* weights : {"f32", "w8a8"}) {
    EngineOptions options;
    options.model = test::SourceDir() + "/tests/golden/base_mha";
    options.draft = test::SourceDir() + "/tests/golden/medusa/c_v2_k4_l1";
    options.weights = options.head_weights = weights;
    const EngineInfo all = LoadModel(options)->info;
    EXPECT_EQ(all.num_draft_vocab, all.vocab_size);
    options.draft_vocab = dir.Write("vocab.json", "[3,5,8]");
    const EngineInfo some = LoadModel(options)->info;
    EXPECT_EQ(some.num_draft_vocab, 3);
    EXPECT_GT(some.head_weight_bytes, all.head_weight_bytes);
    EXPECT_LT(some.head_weight_bytes, all.head_weight_bytes + all.weight_bytes);
  }
}

}  // namespace
}  // namespace hydrant::load::loaded_model_test
