// SPDX-License-Identifier: Apache-2.0
// Expected ids: transformers 4.46.3, LlamaTokenizer (slow) for tokenizer.model, AutoTokenizer for tokenizer.json.
#include "tokenizer/tokenizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::tokenizer::tokenizer_config_test {
namespace {

using base::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

std::string CaseFolder(const std::string& name) { return test::SourceDir() + "/tests/cases/" + name; }

// A folder with a tokenizer and what may stand beside it.
class Folder {
 public:
  static Folder WithModel() {  // 4096 pieces
    Folder folder;
    folder.Put("tokenizer.model", base::ReadTextFile(test::SourceDir() + "/models/tale-14m/tokenizer.model"));
    return folder;
  }
  static Folder WithJson() {  // byte-level, 1500 tokens and <|endoftext|>, <|im_start|>, <|im_end|>
    Folder folder;
    folder.Put("tokenizer.json", base::ReadTextFile(CaseFolder("added_tokens") + "/tokenizer.json"));
    return folder;
  }
  static Folder WithLlamaJson() {  // Metaspace "first"
    Folder folder;
    const std::string golden = test::SourceDir() + "/tests/golden/tokenizers/tale14m_metaspace/tokenizer.json";
    folder.Put("tokenizer.json", base::ReadTextFile(golden));
    return folder;
  }
  Folder& Put(const std::string& name, const std::string& text) {
    dir_->Write(name, text);
    return *this;
  }
  Folder& Config(const std::string& text) { return Put("tokenizer_config.json", text); }
  std::unique_ptr<Tokenizer> Load() const { return LoadTokenizer(dir_->path()); }
  Ids Encode(const std::string& text) const {
    const auto tokenizer = Load();
    return tokenizer->Encode(text, {.parse_special = true, .add_bos = tokenizer->adds_bos()});
  }
  std::string Warning() const {
    std::string all;
    const auto tokenizer = Load();
    for (const std::string& warning : tokenizer->warnings()) all += warning + "\n";
    return all;
  }
  std::string path() const { return dir_->path(); }

 private:
  std::shared_ptr<test::TempDir> dir_ = std::make_shared<test::TempDir>();
};

void CheckCases(const std::string& name) {
  const Json expected = base::ReadJsonFile(CaseFolder(name) + "/expected.json");
  const auto tokenizer = LoadTokenizer(CaseFolder(name));
  EXPECT_THAT(tokenizer->warnings(), IsEmpty());
  for (const Json& golden : expected["cases"]) {
    const auto text = golden["text"].get<std::string>();
    EXPECT_EQ(tokenizer->Encode(text, {.parse_special = true, .add_bos = tokenizer->adds_bos()}),
              golden["ids"].get<Ids>())
        << text;
  }
}

TEST(TokenizerConfigTest, LegacyFalseGivesNoSpaceAfterASpecialToken) { CheckCases("legacy_false"); }

TEST(TokenizerConfigTest, AModelFileAloneIsSentencePieceAlone) {
  const auto alone = LoadTokenizer(CaseFolder("legacy_false") + "/tokenizer.model");
  EXPECT_THAT(alone->Encode("</s>USER", {}), ElementsAre(2, 804, 4043, 1204));
}

TEST(TokenizerConfigTest, LegacyFalseIsFollowedWithItsPrefixSpace) {
  const std::string llama = R"({"tokenizer_class":"LlamaTokenizer","legacy":false)";
  EXPECT_THAT(Folder::WithModel().Config(llama + "}").Encode("hi <s>x"), ElementsAre(1, 293, 4020, 4012, 1, 4059));
  const Folder none = Folder::WithModel().Config(llama + R"(,"add_prefix_space":false})");
  EXPECT_THAT(none.Encode("hi <s>x"), ElementsAre(1, 3926, 4012, 1, 4059));
  EXPECT_EQ(none.Load()->Decode(none.Encode(" x"), true), " x");
  EXPECT_THAT(Folder::WithModel().Config(llama + R"(,"add_prefix_space":null})").Encode("hi"), ElementsAre(1, 3926));
  EXPECT_THAT(Folder::WithModel().Config(R"({"legacy":true,"tokenizer_class":"LlamaTokenizer"})").Encode("</s>USER"),
              ElementsAre(1, 2, 804, 4043, 1204));
}

TEST(TokenizerConfigTest, ATextOfLegacyFalseComesBack) {
  const auto tokenizer = LoadTokenizer(CaseFolder("legacy_false"));
  for (const std::string text : {"Hello there", " x", "  two", "a\nb", "A USER: hi", ""}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, {}), false), text);
  }
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a</s>USER", {}), false), "a</s>USER");
}

TEST(TokenizerConfigTest, TokensAddedBesideATokenizerJsonCount) { CheckCases("added_tokens"); }

TEST(TokenizerConfigTest, AddedTokensAreTextUnlessTheyAreSpecial) {
  const auto tokenizer = LoadTokenizer(CaseFolder("added_tokens"));
  const Ids ids = {87, 1503, 1502, 88};
  EXPECT_EQ(tokenizer->Decode(ids, true), "x<tool_call>y");
  EXPECT_EQ(tokenizer->Decode(ids, false), "x<tool_call><|im_end|>y");
  EXPECT_EQ(tokenizer->vocab_size(), 1505);
  EXPECT_EQ(tokenizer->IdOfToken("<think>"), 1504);
  EXPECT_EQ(tokenizer->IdOfToken("<none>"), -1);
}

TEST(TokenizerConfigTest, TheOlderFilesCountWithoutAnAddedTokensDecoder) {
  Folder folder = Folder::WithJson();
  folder.Put("added_tokens.json", R"({"<think>":1503,"<x>":1504})");
  EXPECT_THAT(folder.Encode("a<think>b"), ElementsAre(64, 1503, 65));
  folder.Config(R"({"tokenizer_class":"Qwen2Tokenizer","additional_special_tokens":["<x>","<y>"]})");
  folder.Put("special_tokens_map.json", R"({"pad_token":"<zz>","eos_token":{"content":"<eos2>","lstrip":false}})");
  // The rest is numbered behind the added ones: EOS, padding, then the additional ones.
  EXPECT_THAT(folder.Encode("<x><eos2><zz><y>"), ElementsAre(1504, 1505, 1506, 1507));
  EXPECT_TRUE(folder.Load()->IsSpecial(1504));
  EXPECT_FALSE(folder.Load()->IsSpecial(1503));
  EXPECT_EQ(folder.Warning(), "");
}

TEST(TokenizerConfigTest, AnAddedTokensDecoderStandsBeforeTheOlderFiles) {
  Folder folder = Folder::WithJson();
  folder.Put("added_tokens.json", R"({"<other>":1503})");
  folder.Config(R"({"added_tokens_decoder":{"1503":{"content":"<think>"}}})");
  EXPECT_THAT(folder.Encode("<think>"), ElementsAre(1503));
  EXPECT_THAT(folder.Warning(), HasSubstr("added_tokens.json: \"<other>\" (1503) is not used"));
}

TEST(TokenizerConfigTest, TheConfigSaysHowATokenIsFound) {
  Folder folder = Folder::WithJson();
  folder.Config(R"({"added_tokens_decoder":{"1500":{"content":"<|endoftext|>","lstrip":true},
      "1503":{"content":"cat","single_word":true},"1504":{"content":"<r>","rstrip":true}}})");
  EXPECT_THAT(folder.Encode("a  <|endoftext|>b"), ElementsAre(64, 1500, 65));
  EXPECT_THAT(folder.Encode("cats"), testing::Not(ElementsAre(1503, testing::_)));
  EXPECT_THAT(folder.Encode("cat.<r>  a"), ElementsAre(1503, 13, 1504, 64));
  EXPECT_TRUE(folder.Load()->IsSpecial(1500));  // as tokenizer.json has it
}

TEST(TokenizerConfigTest, IdsThatContradictTokenizerJsonAreWarnedOf) {
  const auto warning = [](const std::string& tokens) {
    return Folder::WithJson().Config(R"({"added_tokens_decoder":{)" + tokens + "}}").Warning();
  };
  EXPECT_THAT(warning(R"("1600":{"content":"<|im_end|>"})"), HasSubstr("but 1502 in tokenizer.json, which is used"));
  EXPECT_THAT(warning(R"("1502":{"content":"<|mine|>"})"), HasSubstr("which is \"<|im_end|>\" in tokenizer.json"));
  EXPECT_THAT(warning(R"("64":{"content":"<|mine|>"})"), HasSubstr("which is \"a\" in the vocabulary"));
  EXPECT_THAT(warning(R"("1510":{"content":"<gap>"})"), HasSubstr("would leave no gap and make it 1503"));
  EXPECT_EQ(warning(R"("1503":{"content":"<next>"})"), "");
  try {
    warning(R"("2000000000":{"content":"<far>"})");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_THAT(e.what(), HasSubstr("tokenizer_config.json: added token \"<far>\" has id 2000000000"));
  }
}

TEST(TokenizerConfigTest, TokensWithARoleAreFoundAndNumbered) {
  const std::string llama = R"({"tokenizer_class":"LlamaTokenizer","legacy":false,)";
  const Folder folder = Folder::WithModel().Config(
      llama + R"("pad_token":"[PAD]","additional_special_tokens":["<x>",{"content":"<y>","lstrip":true}]})");
  EXPECT_THAT(folder.Encode("[PAD]<x>  <y>"), ElementsAre(1, 4096, 4097, 4098));
  EXPECT_THAT(Folder::WithModel().Config(llama + R"("bos_token":"<b>"})").Encode("<b>"), ElementsAre(4096, 4096));
  // What no file names any more is text, as in transformers.
  EXPECT_THAT(Folder::WithModel().Config(llama + R"("eos_token":"<e>"})").Encode("</s>"),
              ElementsAre(1, 4012, 63, 4085, 4019, 65));
}

// Beside added_tokens.json, which has no flags, an object in another file says how the token is found.
TEST(TokenizerConfigTest, TheObjectOfARoleSaysHowATokenOfTheOlderFileIsFound) {
  const std::string mask = R"("mask_token":{"content":"<mask>","lstrip":true,"normalized":false})";
  Folder model = Folder::WithModel().Config(R"({"tokenizer_class":"LlamaTokenizer"})");
  model.Put("added_tokens.json", R"({"<mask>":4096})").Put("special_tokens_map.json", "{" + mask + "}");
  EXPECT_THAT(model.Encode("a <mask> b"), ElementsAre(1, 261, 4096, 4012, 271));
  Folder json = Folder::WithJson().Config(R"({"tokenizer_class":"Qwen2Tokenizer",)" + mask + "}");
  json.Put("added_tokens.json", R"({"<mask>":1503})");
  EXPECT_THAT(json.Encode("a <mask> b"), ElementsAre(64, 1503, 307));
}

TEST(TokenizerConfigTest, ARoleThatOnlyTheClassNamesIsFoundAsTheClassHasIt) {
  const std::string rest = R"("added_tokens_decoder":{"2":{"content":"</s>","rstrip":true,"special":true}}})";
  EXPECT_THAT(Folder::WithModel().Config(R"({"tokenizer_class":"LlamaTokenizer",)" + rest).Encode("a </s> b"),
              ElementsAre(1, 261, 4012, 2, 4012, 271));
}

TEST(TokenizerConfigTest, CodeLlamaHasTokensForInfilling) {
  const std::string head = R"({"tokenizer_class":"CodeLlamaTokenizer","prefix_token":"<PRE>","middle_token":null})";
  EXPECT_THAT(Folder::WithModel().Config(head).Encode("a <PRE> b"), ElementsAre(1, 261, 4012, 4096, 271));
  const Folder llama = Folder::WithModel().Config(R"({"tokenizer_class":"LlamaTokenizer","prefix_token":"<PRE>"})");
  EXPECT_THAT(llama.Encode("<PRE>"), ElementsAre(1, 4012, 63, 4058, 3115, 65)) << "no token of that class";
}

TEST(TokenizerConfigTest, IdsBesideAModelFileThatTransformersMayNumberOtherwiseAreWarnedOf) {
  const auto warning = [](const std::string& tokens) {
    return Folder::WithModel()
        .Config(R"({"tokenizer_class":"LlamaTokenizer"})")
        .Put("added_tokens.json", tokens)
        .Warning();
  };
  EXPECT_EQ(warning(R"({"<x>":4096,"<y>":4097})"), "");
  EXPECT_THAT(warning(R"({"<x>":4096,"<y>":4098})"), HasSubstr("\"<y>\" has id 4098, which leaves a gap behind 4096"));
  EXPECT_THAT(warning(R"({"the":4096})"), HasSubstr("\"the\" has id 4096, and "));
}

// A token may begin in white space that the one before it took.
TEST(TokenizerConfigTest, WhiteSpaceThatATokenTookStillBeginsAnother) {
  const Folder folder =
      Folder::WithJson().Config(R"({"tokenizer_class":"Qwen2Tokenizer","added_tokens_decoder":{)"
                                R"("1503":{"content":"<r>","rstrip":true,"normalized":false,"special":true},)"
                                R"("1504":{"content":" bar","normalized":false}}})");
  EXPECT_THAT(folder.Encode("<r> bar bar"), ElementsAre(1503, 1504, 1504));
  EXPECT_THAT(folder.Encode("<r>  \n x"), ElementsAre(1503, 87));
}

TEST(TokenizerConfigTest, LlamaClassesPutBosByTheConfigAlone) {
  const auto ids = [](const std::string& more) {
    return Folder::WithLlamaJson().Config(R"({"tokenizer_class":"LlamaTokenizer")" + more + "}").Encode("hi");
  };
  EXPECT_THAT(ids(""), ElementsAre(1, 293, 4020));
  EXPECT_THAT(ids(R"(,"add_bos_token":false)"), ElementsAre(293, 4020));
  EXPECT_THAT(ids(R"(,"bos_token":"</s>")"), ElementsAre(2, 293, 4020));
  EXPECT_THAT(ids(R"(,"bos_token":null,"add_bos_token":false)"), ElementsAre(293, 4020));
}

// transformers then builds the fast tokenizer from tokenizer.model.
TEST(TokenizerConfigTest, AddPrefixSpaceBesideATokenizerJsonRebuildsItsSpaces) {
  Folder folder = Folder::WithLlamaJson();
  folder.Config(R"({"tokenizer_class":"LlamaTokenizer","add_prefix_space":false})");
  EXPECT_THAT(folder.Warning(), HasSubstr("'add_prefix_space' is false, and tokenizer.json says otherwise"));
  folder.Put("tokenizer.model", "");
  EXPECT_THAT(folder.Encode("hi <s>x"), ElementsAre(1, 3926, 4012, 1, 4059));
  EXPECT_EQ(folder.Warning(), "");
  folder.Config(R"({"tokenizer_class":"LlamaTokenizer","add_prefix_space":true})");
  EXPECT_THAT(folder.Encode("hi <s>x"), ElementsAre(1, 293, 4020, 4012, 1, 1088));
  // Of its own tokens it then makes ones that are looked for in the text as it is.
  Json json = base::ReadJsonFile(folder.path() + "/tokenizer.json");
  for (Json& token : json["added_tokens"]) token["normalized"] = true;
  folder.Put("tokenizer.json", json.dump());
  EXPECT_THAT(folder.Encode("a</s>b"), ElementsAre(1, 261, 2, 271));
}

TEST(TokenizerConfigTest, SplitSpecialTokensMakesThemText) {
  const Folder json = Folder::WithJson().Config(R"({"split_special_tokens":true})");
  EXPECT_THAT(json.Encode("a<|im_end|>"), ElementsAre(64, 357, 469, 654, 361));
  const Folder model =
      Folder::WithModel().Config(R"({"tokenizer_class":"LlamaTokenizer","split_special_tokens":true})");
  EXPECT_THAT(model.Encode("</s>"), ElementsAre(1, 4012, 63, 4085, 4019, 65));
}

TEST(TokenizerConfigTest, WarnsOfKeysThatItDoesNotFollow) {
  const auto warning = [](const std::string& config) { return Folder::WithModel().Config(config).Warning(); };
  EXPECT_THAT(warning(R"({"add_eos_token":true})"), HasSubstr("'add_eos_token' is true and not followed"));
  EXPECT_THAT(warning(R"({"sp_model_kwargs":{"enable_sampling":true}})"), HasSubstr("enable_sampling"));
  EXPECT_THAT(warning(R"({"tokenizer_class":"T5Tokenizer"})"), HasSubstr("'tokenizer_class' is \"T5Tokenizer\""));
  EXPECT_THAT(warning(R"({"auto_map":{"AutoTokenizer":["a.B",null]}})"), HasSubstr("'auto_map'"));
  EXPECT_THAT(warning(R"({"use_default_system_prompt":true})"), HasSubstr("'use_default_system_prompt'"));
  EXPECT_THAT(warning(R"({"tokenizer_class":"LlamaTokenizer","add_prefix_space":false})"),
              HasSubstr("no effect without \"legacy\": false"));
  EXPECT_EQ(
      warning(R"({"tokenizer_class":"LlamaTokenizer","clean_up_tokenization_spaces":true,"padding_side":"left"})"), "");
  const auto cleaned = Folder::WithModel().Config(R"({"clean_up_tokenization_spaces":true})").Load();
  EXPECT_THAT(cleaned->notes(), ElementsAre(HasSubstr("'clean_up_tokenization_spaces' is true and not followed")));

  Json json = Json::parse(base::ReadTextFile(CaseFolder("added_tokens") + "/tokenizer.json"));
  json["truncation"] = {{"max_length", 3}};
  json["padding"] = {{"strategy", "BatchLongest"}};
  const test::TempDir folder;
  folder.Write("tokenizer.json", json.dump());
  EXPECT_THAT(LoadTokenizer(folder.path())->warnings(),
              ElementsAre(HasSubstr("'truncation' is not followed"), HasSubstr("'padding' is not followed")));
}

}  // namespace
}  // namespace hydrant::tokenizer::tokenizer_config_test
