// SPDX-License-Identifier: Apache-2.0
#include "train/base_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::train::base_tokenizer_test {
namespace {

using testing::HasSubstr;

std::string Own() { return test::SourceDir() + "/models/tale-14m"; }

TEST(BaseTokenizerTest, NewFilesSayWhatTheEmbeddedModelsSay) {
  const TokenizerFiles files = NewTokenizerFiles(base::ReadTextFile(Own() + "/tokenizer.model"), "vicuna", 512);
  EXPECT_EQ(base::ParseJson(files.at("tokenizer_config.json"), "new"),
            base::ReadJsonFile(Own() + "/tokenizer_config.json"));
  const LoadedTokenizer loaded = LoadTokenizerOf(files, "");
  EXPECT_EQ(loaded.chat.name, "vicuna");
  EXPECT_EQ(loaded.chat.tokens.eos, "</s>");
  const auto& tokenizer = loaded.tokenizer;
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->Encode("Once upon", {.parse_special = true, .add_bos = true}),
            tokenizer::LoadTokenizer(Own())->Encode("Once upon", {.parse_special = true, .add_bos = true}));
  EXPECT_THAT(NewTokenizerFiles("x", "", 512).at("tokenizer_config.json"), testing::Not(HasSubstr("chat_template")));
  EXPECT_THROW(NewTokenizerFiles("x", "llama-3", 512), UserError);
}

TEST(BaseTokenizerTest, AnothersFilesAreTakenAsTheyAre) {
  const TokenizerFiles files = ReadTokenizerFiles(Own(), "");
  EXPECT_EQ(files.size(), 2U);
  EXPECT_EQ(files.at("tokenizer.model"), base::ReadTextFile(Own() + "/tokenizer.model"));
  EXPECT_EQ(LoadTokenizerOf(files, "").tokenizer->vocab_size(), 4096);
  const std::string json = test::SourceDir() + "/tests/golden/tokenizers/own_bytelevel_qwen2";
  EXPECT_EQ(LoadTokenizerOf(ReadTokenizerFiles(json, "vicuna"), "vicuna").tokenizer->vocab_size(),
            tokenizer::LoadTokenizer(json)->vocab_size());
}

TEST(BaseTokenizerTest, ErrorsNameTheFilesOfTheFolder) {
  const test::TempDir dir;
  const auto message = [&](const std::string& folder) {
    try {
      ReadTokenizerFiles(folder, "");
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message(dir.path()), HasSubstr("no tokenizer.model"));
  EXPECT_THAT(message(dir.path() + "/none"), HasSubstr("/none: is no folder"));
  const std::string bad = dir.Write("tokenizer.model", "no model");
  EXPECT_THAT(message(dir.path()), testing::StartsWith(bad));
}

}  // namespace
}  // namespace hydrant::train::base_tokenizer_test
