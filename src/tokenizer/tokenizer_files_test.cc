// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tokenizer/loaders.h"

namespace hydrant::tokenizer::tokenizer_files_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string& ModelBytes() {
  static const std::string bytes = base::ReadTextFile(test::SourceDir() + "/models/tale-14m/tokenizer.model");
  return bytes;
}

// Qwen2's layout: no BOS, so that it cannot be taken for the SentencePiece model.
std::string OtherJson() {
  return base::ReadTextFile(test::SourceDir() + "/tests/golden/tokenizers/own_bytelevel_qwen2/tokenizer.json");
}

TEST(TokenizerFilesTest, PrefersTokenizerJson) {
  const test::TempDir folder;
  EXPECT_FALSE(HasTokenizer(folder.path()));
  folder.Write("tokenizer.model", ModelBytes());
  EXPECT_TRUE(HasTokenizer(folder.path()));
  EXPECT_EQ(LoadTokenizer(folder.path())->vocab_size(), 4096);
  folder.Write("tokenizer.json", OtherJson());
  EXPECT_EQ(LoadTokenizer(folder.path())->vocab_size(), 1503);
  EXPECT_EQ(LoadTokenizer(folder.path() + "/tokenizer.model")->vocab_size(), 4096);
}

TEST(TokenizerFilesTest, ReadsTheConfigBesideTheModel) {
  const test::TempDir folder;
  const std::string model = folder.Write("tokenizer.model", ModelBytes());
  EXPECT_TRUE(LoadTokenizer(model)->adds_bos());
  folder.Write("added_tokens.json", R"({"<pad>":4096,"<mask>":4097})");
  EXPECT_THAT(LoadTokenizer(model)->Encode("<mask><pad>", {}), ElementsAre(4097, 4096));
  folder.Write("tokenizer_config.json",
               R"({"add_bos_token":false,"added_tokens_decoder":{"4096":{"content":"<one>","special":true}}})");
  EXPECT_FALSE(LoadTokenizer(model)->adds_bos());
  EXPECT_EQ(LoadTokenizer(model)->vocab_size(), 4097);
  EXPECT_THAT(LoadTokenizer(folder.path())->Encode("<one>", {}), ElementsAre(4096));
}

TEST(TokenizerFilesTest, NamesTheFileAtFault) {
  const test::TempDir folder;
  const auto message = [](const std::string& path) -> std::string {
    try {
      LoadTokenizer(path);
    } catch (const FileError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(folder.path()), folder.path() + ": has no tokenizer.json and no tokenizer.model");
  EXPECT_THAT(message(folder.path() + "/absent.json"), HasSubstr("absent.json: "));
  EXPECT_THAT(message(folder.Write("vocab.txt", "a")), HasSubstr("vocab.txt: is no tokenizer file"));
  folder.Write("tokenizer.model", ModelBytes());
  for (const char* config : {"{", "[]", R"({"add_bos_token":1})", R"({"added_tokens_decoder":{"x":{"content":"a"}}})",
                             R"({"added_tokens_decoder":{"5000":{"content":""}}})", R"({"bos_token":7})"}) {
    folder.Write("tokenizer_config.json", config);
    EXPECT_THAT(message(folder.path()), HasSubstr("tokenizer_config.json: ")) << config;
  }
}

TEST(StreamDecoderTest, SkipsIdsWithoutText) {
  const test::TempDir folder;
  const auto tokenizer = LoadTokenizer(folder.Write("tokenizer.model", ModelBytes()));
  StreamDecoder decoder(tokenizer.get(), false);
  EXPECT_EQ(decoder.Push(1), "");     // BOS
  EXPECT_EQ(decoder.Push(5000), "");  // beyond the vocabulary: a padding row of the model
  StreamDecoder shown(tokenizer.get(), false, /*skip_special=*/false);
  EXPECT_EQ(shown.Push(1), "<s>");
}

}  // namespace
}  // namespace hydrant::tokenizer::tokenizer_files_test
