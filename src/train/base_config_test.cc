// SPDX-License-Identifier: Apache-2.0
#include "train/base_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "train/data/wrapped_tokenizer.h"

namespace hydrant::train::base_config_test {
namespace {

using base::Json;
using testing::AllOf;
using testing::HasSubstr;

std::string MessageOf(const BaseShape& shape) {
  try {
    ConfigOf(shape);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

class Sized : public WrappedTokenizer {
 public:
  Sized(const tokenizer::Tokenizer& other, int32_t size) : WrappedTokenizer(other), size_(size) {}
  int32_t vocab_size() const override { return size_; }

 private:
  int32_t size_;
};

TEST(BaseConfigTest, IsTheEmbeddedModelsWhereNothingIsSaid) {
  const std::string folder = test::SourceDir() + "/models/tale-14m";
  const auto tokenizer = tokenizer::LoadTokenizer(folder);
  const BaseShape shape;
  Json config = ConfigOf(shape);
  FitToTokenizer(config, shape, *tokenizer, DType::kBF16);
  EXPECT_EQ(config, base::ReadJsonFile(folder + "/config.json"));
  EXPECT_EQ(GenerationConfigOf(config), base::ReadJsonFile(folder + "/generation_config.json"));
}

TEST(BaseConfigTest, SizesReplaceThoseOfAFile) {
  const test::TempDir dir;
  const std::string file =
      dir.Write("c.json", R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 5000.0,
      "tie_word_embeddings": true, "_name_or_path": "x/y", "initializer_range": 0.01})");
  const BaseShape shape{.config = file, .num_layers = 3};
  const Json config = ConfigOf(shape);
  EXPECT_EQ(config["num_hidden_layers"], 3);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["architectures"], Json({"LlamaForCausalLM"}));
  EXPECT_EQ(config["initializer_range"], 0.01);
  EXPECT_FALSE(config.contains("_name_or_path"));
  const model::ModelConfig sizes = SizesOf(config, shape);
  EXPECT_EQ(sizes.rope.theta, 5000);
  EXPECT_TRUE(sizes.tied_embeddings);
  EXPECT_EQ(ConfigOf({.num_heads = 8})["num_key_value_heads"], 8);
}

TEST(BaseConfigTest, SizesThatDoNotGoTogetherAreRefusedByName) {
  EXPECT_THAT(MessageOf({.num_heads = 3}), AllOf(HasSubstr("num_attention_heads"), HasSubstr("hidden_size 256")));
  EXPECT_THAT(MessageOf({.num_heads = 256}), HasSubstr("even head_dim"));
  EXPECT_THAT(MessageOf({.num_kv_heads = 3}), HasSubstr("num_key_value_heads"));
  const test::TempDir dir;
  const auto file = [&](const char* text) { return MessageOf({.config = dir.Write("c.json", text)}); };
  EXPECT_THAT(file(R"({"model_type": "mamba"})"),
              AllOf(HasSubstr("c.json: 'model_type' is \"mamba\""), HasSubstr("\"llama\"")));
  EXPECT_THAT(file(R"({"model_type": "qwen2"})"), HasSubstr("c.json: 'model_type' is \"qwen2\", expected \"llama\""));
  EXPECT_THAT(file(R"({"hidden_size": 3})"), HasSubstr("'model_type' is missing"));
  EXPECT_THAT(file("[1]"), HasSubstr("object"));
  EXPECT_THAT(file(R"({"model_type": "llama", "vocab_size": 300})"), HasSubstr("'hidden_size' is missing"));
  EXPECT_THAT(MessageOf({.config = dir.path() + "/none.json"}), HasSubstr("none.json"));
}

TEST(BaseConfigTest, TheVocabularyIsTheTokenizersOrLarger) {
  const auto tokenizer = tokenizer::LoadTokenizer(test::SourceDir() + "/models/tale-14m");
  const auto fitted = [&](const BaseShape& shape, int32_t tokens) {
    Json config = ConfigOf(shape);
    FitToTokenizer(config, shape, Sized(*tokenizer, tokens), DType::kF32);
    return config;
  };
  EXPECT_EQ(fitted({}, 5000)["vocab_size"], 5000);
  EXPECT_EQ(fitted({.vocab_size = 6000}, 5000)["vocab_size"], 6000);
  EXPECT_EQ(fitted({}, 5000)["torch_dtype"], "float32");
  try {
    fitted({.vocab_size = 4999}, 5000);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'vocab_size' is 4999"), HasSubstr("5000 tokens")));
  }
}

}  // namespace
}  // namespace hydrant::train::base_config_test
