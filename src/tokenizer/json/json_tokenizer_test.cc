// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tokenizer/loaders.h"

namespace hydrant::tokenizer::json_tokenizer_test {
namespace {

using base::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string GoldenFile(const std::string& name) {
  return base::ReadTextFile(test::SourceDir() + "/tests/golden/tokenizers/" + name + "/tokenizer.json");
}

// A byte-level tokenizer of a few tokens.
Json Tiny() {
  return Json::parse(R"({"added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":null,
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},"post_processor":null,
    "decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
}

std::string MessageOf(const Json& json) {
  try {
    LoadTokenizerJson(json.dump(), "t.json");
  } catch (const FileError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(JsonTokenizerTest, EncodesAndDecodesWithTheLeastFile) {
  const auto tokenizer = LoadTokenizerJson(Tiny().dump(), "t.json");
  EXPECT_THAT(tokenizer->Encode("ab<s>b", {}), ElementsAre(2, 3, 1));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{2, 3, 1}, true), "abb");
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  EXPECT_TRUE(tokenizer->IsSpecial(3));
  EXPECT_FALSE(tokenizer->IsSpecial(4));
  EXPECT_EQ(tokenizer->TokenText(3), "<s>");
  EXPECT_EQ(tokenizer->TokenText(2), "");
  EXPECT_EQ(tokenizer->TokenBytes(100, false), "");
}

TEST(JsonTokenizerTest, RefusesIdsAndBosThatItDoesNotHave) {
  const auto tokenizer = LoadTokenizerJson(Tiny().dump(), "t.json");
  EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{4}, false), UserError);
  EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{-1}, false), UserError);
  EXPECT_THROW(tokenizer->Encode("a", {.parse_special = true, .add_bos = true}), UserError);
}

TEST(JsonTokenizerTest, RefusesUnknownPartsByName) {
  const auto with = [](const std::string& key, const char* value) {
    Json json = Tiny();
    json[key] = Json::parse(value);
    return MessageOf(json);
  };
  EXPECT_THAT(with("normalizer", R"({"type":"Lowercase"})"), HasSubstr("'normalizer.type' is \"Lowercase\""));
  EXPECT_THAT(with("pre_tokenizer", R"({"type":"Whitespace"})"), HasSubstr("'pre_tokenizer.type' is \"Whitespace\""));
  EXPECT_THAT(with("decoder", R"({"type":"WordPiece"})"), HasSubstr("'decoder.type' is \"WordPiece\""));
  EXPECT_THAT(with("decoder", "null"), HasSubstr("'decoder' is null"));
  EXPECT_THAT(with("post_processor", R"({"type":"BertProcessing"})"), HasSubstr("\"BertProcessing\""));
  EXPECT_THAT(with("model", R"({"type":"WordLevel","vocab":{"a":0}})"), HasSubstr("'model.type' is \"WordLevel\""));
  const char* strip_first = R"({"type":"Sequence","decoders":[{"type":"Strip","content":" ","start":1,"stop":0}]})";
  EXPECT_THAT(with("decoder", strip_first), HasSubstr("the order"));
  const char* eos_last =
      R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"<s>"}}],
    "special_tokens":{"<s>":{"ids":[3]}}})";
  EXPECT_THAT(with("post_processor", eos_last), HasSubstr("then the text"));
}

TEST(JsonTokenizerTest, RefusesAddedTokensThatContradictTheVocabulary) {
  const auto with = [](const char* tokens) {
    Json json = Tiny();
    json["added_tokens"] = Json::parse(tokens);
    return MessageOf(json);
  };
  EXPECT_THAT(with(R"([{"id":1,"content":"<s>"}])"), HasSubstr("the id that the vocabulary gives"));
  EXPECT_THAT(with(R"([{"id":7,"content":"ab"}])"), HasSubstr("the id that the vocabulary gives"));
  EXPECT_THAT(with(R"([{"id":7,"content":""}])"), HasSubstr("1 to 512 bytes"));
  EXPECT_THAT(with(R"([{"id":7,"content":"x"},{"id":8,"content":"x"}])"), HasSubstr("not added before"));
  EXPECT_THAT(with(R"([{"id":2000000000,"content":"x"}])"), HasSubstr("an integer from 0 to"));
  EXPECT_EQ(with(R"([{"id":2,"content":"ab"}])"), "accepted");
}

TEST(JsonTokenizerTest, TakesTheBosRuleFromThePostProcessorOrTheLlamaClass) {
  Json json = Tiny();
  EXPECT_FALSE(LoadTokenizerJson(json.dump(), "t.json")->adds_bos());
  ConfigRules llama = ParseConfigRules(R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":true,"bos_token":"<s>"})",
                                       "tokenizer_config.json");
  EXPECT_TRUE(LoadTokenizerJson(json.dump(), "t.json", llama)->adds_bos());
  ConfigRules other = llama;
  other.class_of = TokenizerClass::kOther;
  EXPECT_FALSE(LoadTokenizerJson(json.dump(), "t.json", other)->adds_bos());
  EXPECT_EQ(LoadTokenizerJson(json.dump(), "t.json", other)->bos_id(), 3);

  json["post_processor"] = Json::parse(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},
    {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],
     "special_tokens":{"<s>":{"ids":[3]}}}]})");
  const auto tokenizer = LoadTokenizerJson(json.dump(), "t.json");
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_THAT(tokenizer->Encode("<s>a", {.parse_special = true, .add_bos = true}), ElementsAre(3, 3, 0));
  llama.add_bos_token = false;
  EXPECT_FALSE(LoadTokenizerJson(json.dump(), "t.json", llama)->adds_bos());
}

TEST(JsonTokenizerTest, ReplacesMalformedInput) {
  const auto tokenizer = LoadTokenizerJson(GoldenFile("own_bytelevel_llama3"), "t.json");
  const std::string text = "a\xFF\xE4\xBD z\xC0";
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, {}), false), "a\xEF\xBF\xBD\xEF\xBF\xBD z\xEF\xBF\xBD");
}

// Loads bytes that may be anything: a typed error or a tokenizer that works.
void LoadDamaged(const std::string& text) {
  try {
    const auto tokenizer = LoadTokenizerJson(text, "t.json");
    const std::vector<int32_t> ids = tokenizer->Encode("The caf\xC3\xA9 costs 12 <s> ", {});
    tokenizer->Decode(ids, false);
  } catch (const UserError&) {
  }
}

TEST(JsonTokenizerTest, SurvivesTruncation) {
  const std::string text = Tiny().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(LoadTokenizerJson(text.substr(0, size), "t.json"), FileError) << size;
  }
  const std::string large = GoldenFile("tale14m_legacy");
  for (size_t size = 0; size < large.size(); size += large.size() / 40) LoadDamaged(large.substr(0, size));
}

TEST(JsonTokenizerTest, SurvivesFlippedBits) {
  std::mt19937 random(5);
  const std::string tiny = Tiny().dump();
  for (size_t i = 0; i < tiny.size() * 8; ++i) {
    std::string damaged = tiny;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    LoadDamaged(damaged);
  }
  const std::string large = GoldenFile("own_bytelevel_qwen2");
  for (int round = 0; round < 100; ++round) {
    std::string damaged = large;
    for (int flip = 0; flip < 3; ++flip) {
      char& byte = damaged[random() % damaged.size()];
      byte = static_cast<char>(byte ^ (1 << (random() % 7)));
    }
    LoadDamaged(damaged);
  }
}

}  // namespace
}  // namespace hydrant::tokenizer::json_tokenizer_test
