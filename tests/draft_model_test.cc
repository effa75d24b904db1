// SPDX-License-Identifier: Apache-2.0
// A draft model's tokens are compared with its base's; what it drafts is the base's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "load/loaded_model.h"
#include "load/same_tokens.h"
#include "tests/golden_case.h"
#include "tests/test_data.h"

namespace hydrant::test::draft_model_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;

std::string Tale() { return SourceDir() + "/models/tale-14m"; }
std::string GoldenBase() { return SourceDir() + "/tests/golden/base_mha"; }

TEST(SameTokensTest, TheFirstDifferenceIsNamed) {
  const auto own = tokenizer::LoadTokenizer(Tale());
  const auto other = tokenizer::LoadTokenizer(SourceDir() + "/tests/golden/tokenizers/own_bytelevel_llama3");
  EXPECT_EQ(load::TokenDifference(*own, *own), "");
  EXPECT_THAT(load::TokenDifference(*own, *other), MatchesRegex("token [0-9]+ is .*, expected .*"));
}

std::string ErrorOf(const std::string& model, const std::string& draft) {
  EngineOptions options;
  options.model = model;
  options.draft = draft;
  try {
    load::LoadModel(options);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

TEST(DraftModelTest, OtherTokensAreRefused) {
  EXPECT_THAT(ErrorOf(Tale(), GoldenBase()), HasSubstr("vocabulary has 512 tokens, expected"));
  const TempDir dir;
  fs::copy(Tale(), dir.path() + "/draft");
  fs::copy(SourceDir() + "/tests/golden/tokenizers/own_bytelevel_llama3/tokenizer.json",
           dir.path() + "/draft/tokenizer.json");
  EXPECT_THAT(ErrorOf(Tale(), dir.path() + "/draft"), MatchesRegex(".*draft: token [0-9]+ is .* \\(as in .*"));
  fs::remove(dir.path() + "/draft/tokenizer.json");
  fs::remove(dir.path() + "/draft/model.safetensors");
  EXPECT_NE(ErrorOf(Tale(), dir.path() + "/draft"), "");
}

// A model that drafts for itself is always right: every chain is accepted whole.
TEST(DraftModelTest, AModelDraftsItsOwnTextForItself) {
  EngineOptions options;
  options.model = options.draft = GoldenBase();
  options.load_tokenizer = false;
  Engine engine(options);
  EXPECT_EQ(engine.info().drafter, "draft model");
  for (const float temperature : {0.0F, 0.9F}) {
    GenerationRequest request;
    request.prompt_ids = {1, 382, 395, 261, 369, 478, 373, 278, 261};
    request.sampling = {.temperature = temperature, .seed = 3};
    request.stop = {.max_tokens = 61, .ignore_eos = true, .stop = {}};
    request.tree = "[[0,0,0,0,0]]";
    const GenerationResult chain = engine.Generate(request);
    EXPECT_EQ(chain.num_emitted, std::vector<int32_t>(10, 6));
    request.tree = "dynamic";
    request.dynamic = {.nodes = 12, .depth = 5, .width = 3};
    const GenerationResult dynamic = engine.Generate(request);
    EXPECT_LT(dynamic.num_emitted.size(), 25U);
    request.use_drafter = false;
    const GenerationResult plain = engine.Generate(request);
    EXPECT_EQ(chain.token_ids, plain.token_ids);
    EXPECT_EQ(dynamic.token_ids, plain.token_ids);
  }
}

// A shape that is wider than what is drafted has tokens that cannot be drafted, too.
TEST(DraftModelTest, ShapesMayBeWiderThanTheDraftVocabulary) {
  const TempDir dir;
  EngineOptions options;
  options.model = options.draft = GoldenBase();
  options.load_tokenizer = false;
  options.draft_vocab = dir.path() + "/few.json";
  std::ofstream(options.draft_vocab) << "[261, 278, 373]";
  Engine engine(options);
  GenerationRequest request;
  request.prompt_ids = {1, 382, 395, 261, 369, 478, 373, 278, 261};
  request.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
  request.use_drafter = false;
  const GenerationResult plain = engine.Generate(request);
  request.use_drafter = true;
  for (const float min_probability : {0.0F, 0.01F}) {
    request.draft_p_min = min_probability;
    request.tree = "[[0,0],[1,0],[2],[3],[4],[5,0]]";
    EXPECT_EQ(engine.Generate(request).token_ids, plain.token_ids);
    request.tree = "dynamic";
    request.dynamic = {.nodes = 12, .depth = 5, .width = 6};
    EXPECT_EQ(engine.Generate(request).token_ids, plain.token_ids);
  }
}

// Chains of four, as the reference loop drafts them once the prefill has given a token ("rooted").
TEST(DraftModelTest, TextsAndAcceptedLengthsEqualTheReference) {
  HYDRANT_NEED_SHARED();
  EngineOptions options;
  options.model = SharedDir() + "/models/stories260K-hf";
  options.draft = SharedDir() + "/golden/assisted/draft";
  options.tree = "[[0,0,0,0]]";
  Engine engine(options);
  const base::Json json = base::ReadJsonFile(SharedDir() + "/golden/assisted/draft_greedy.json");
  for (const base::Json& one : json.at("cases")) {
    GenerationRequest request;
    request.prompt_ids = Ids(one.at("prompt_ids"));
    request.stop = {.max_tokens = 66, .ignore_eos = true, .stop = {}};
    const GenerationResult result = engine.Generate(request);
    const std::vector<int32_t> tokens = Ids(one.at("output_ids"));
    std::vector<int32_t> lengths = Ids(one.at("rooted").at("num_emitted"));
    lengths.pop_back();  // may be cut by their limit
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), result.token_ids.begin()));
    ASSERT_GE(result.num_emitted.size(), lengths.size());
    EXPECT_TRUE(std::equal(lengths.begin(), lengths.end(), result.num_emitted.begin()));
  }
}

}  // namespace
}  // namespace hydrant::test::draft_model_test
