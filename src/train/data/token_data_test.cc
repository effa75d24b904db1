// SPDX-License-Identifier: Apache-2.0
#include "train/data/token_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "base/json.h"
#include "base/text_parts.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "train/data/documents.h"
#include "train/data/wrapped_tokenizer.h"

namespace hydrant::train::token_data_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using tokenizer::Tokenizer;

std::unique_ptr<Tokenizer> Load(const std::string& path) {
  return tokenizer::LoadTokenizer(test::SourceDir() + "/" + path);
}

const Tokenizer& Tale() {
  static const std::unique_ptr<Tokenizer> tokenizer = Load("models/tale-14m");
  return *tokenizer;
}

ReadOptions Vicuna() { return {.template_name = "vicuna", .template_tokens = tokenizer::UsualTokens("vicuna")}; }

TokenData Read(const std::vector<std::string>& contents, const ReadOptions& options,
               const Tokenizer& tokenizer = Tale(), const std::string& ending = "") {
  const test::TempDir dir;
  std::vector<std::string> files;
  for (size_t i = 0; i < contents.size(); ++i)
    files.push_back(dir.Write("f" + std::to_string(i) + ending, contents[i]));
  return ReadTokenData(files, tokenizer, options);
}

// Documents, their tokens between bars, those that are learned in braces.
std::vector<std::string> Marked(const TokenData& data, const Tokenizer& tokenizer = Tale()) {
  std::vector<std::string> documents;
  int64_t begin = 0;
  for (const int64_t end : data.ends) {
    std::string words;
    for (int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<size_t>(i);
      const std::string bytes = tokenizer.TokenBytes(data.tokens[index], false);
      words += (i == begin ? "" : "|") + (data.learned[index] == 1 ? "{" + bytes + "}" : bytes);
    }
    documents.push_back(words);
    begin = end;
  }
  EXPECT_EQ(data.tokens.size(), data.learned.size());
  EXPECT_EQ(static_cast<size_t>(begin), data.tokens.size());
  return documents;
}

template <typename ErrorType>
void ExpectRefused(const std::vector<std::string>& contents, const ReadOptions& options, const std::string& part,
                   const std::string& hint = "") {
  try {
    Read(contents, options);
    ADD_FAILURE() << "expected: " << part;
  } catch (const ErrorType& error) {
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.hint(), HasSubstr(hint));
  }
}

constexpr const char* kChat =
    R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Bye"}]})";
constexpr const char* kBadChat =
    R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "human", "value": "?"}]})";

TEST(ReadTokenDataTest, TextsHaveBosAndEosAndLearnAllButTheFirst) {
  EXPECT_THAT(Marked(Read({"Hi you\n<|endoftext|>\nBye", R"({"text": "See"})"}, {})),
              ElementsAre("<s>|{ Hi}|{ you}|{</s>}", "<s>|{ By}|{e}|{</s>}", "<s>|{ Se}|{e}|{</s>}"));
  EXPECT_THAT(Marked(Read({"Hi you"}, {.add_bos = false})), ElementsAre(" Hi|{ you}|{</s>}"));
}

TEST(ReadTokenDataTest, ATokenizerWithoutBosAndEosGivesNone) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("tests/golden/tokenizers/own_bytelevel_qwen2");
  ASSERT_EQ(tokenizer->eos_id(), -1);
  EXPECT_THAT(Marked(Read({"Hi you"}, {}, *tokenizer), *tokenizer), ElementsAre("Hi|{ you}"));
}

TEST(ReadTokenDataTest, SpecialTokensAreSpelledByTemplatesAndNotByTexts) {
  EXPECT_THAT(Marked(Read({"a</s>"}, {})), ElementsAre("<s>|{ a}|{<}|{/}|{s}|{>}|{</s>}"));
  const std::vector<std::string> chat = Marked(Read({kChat}, Vicuna()));
  EXPECT_THAT(chat, ElementsAre(AllOf(StartsWith("<s>| A| ch"), testing::EndsWith(":|{ By}|{e}|{</s>}"))));
}

// Neither the end of a text nor that of a last reply is there to learn where the writer was stopped.
TEST(ReadTokenDataTest, WhatIsCutHasNoEnd) {
  EXPECT_THAT(Marked(Read({R"({"text": "Hi you", "finish_reason": "length"})"}, {})), ElementsAre("<s>|{ Hi}|{ you}"));
  const std::string turns =
      R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Bye"},)"
      R"({"from": "human", "value": "Hi"}, {"from": "gpt", "value": "See you"}], "finish_reason": )";
  const std::string whole = Marked(Read({turns + "\"stop\"}"}, Vicuna())).at(0);
  EXPECT_THAT(whole, AllOf(HasSubstr(":|{ By}|{e}|{</s>}| U|"), testing::EndsWith(":|{ Se}|{e}|{ you}|{</s>}")));
  for (const char* reason : {"\"length\"}", "\"context\"}"}) {
    const std::vector<std::string> cut = Marked(Read({turns + reason}, Vicuna()));
    EXPECT_THAT(cut, ElementsAre(whole.substr(0, whole.size() - std::string_view("|{</s>}").size())));
  }
}

TEST(ReadTokenDataTest, ACutReplyOfAnyTemplateEndsWithItsLastWord) {
  const std::string chat =
      R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "See you"}], "finish_reason": "length"})";
  for (const std::string_view name : tokenizer::TemplateNames()) {
    const ReadOptions options{.template_name = std::string(name), .template_tokens = tokenizer::UsualTokens(name)};
    const std::unique_ptr<Tokenizer> tokenizer = Load("tests/cases/added_tokens");
    EXPECT_THAT(Marked(Read({chat}, options, *tokenizer), *tokenizer),
                ElementsAre(testing::EndsWith("S}|{e}|{e}|{ you}")))
        << name;
  }
}

TEST(ReadTokenDataTest, PlainTextUnderANameOfJsonIsTold) {
  std::vector<std::string> warnings;
  ReadOptions options;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  EXPECT_THAT(Marked(Read({"Hi you", "{\"text\": \"a\"}", "\"Bye\"\n"}, options, Tale(), ".jsonl")),
              ElementsAre("<s>|{ Hi}|{ you}|{</s>}", "<s>|{ a}|{</s>}", "<s>|{ By}|{e}|{</s>}"));
  EXPECT_THAT(warnings, ElementsAre(testing::EndsWith(
                            "f0.jsonl: holds neither JSON objects nor texts of JSON, and is learned as plain text")));
  Read({"Hi you"}, options);
  EXPECT_EQ(warnings.size(), 1U);
}

// That are cut between words, at line breaks, and within a word.
std::vector<std::string> LongTexts() {
  std::vector<std::string> texts(3);
  for (int i = 0; texts[0].size() < 5 * kPieceBytes; ++i) {
    texts[0] +=
        "Line " + std::to_string(i) + (i % 3 == 0 ? ", so he said. \n\n" : "  and \xE2\x80\x9Cmore\xE2\x80\x9D\n");
  }
  for (int i = 0; i < 9000; ++i) texts[0] += "word, ";
  texts[0] += "end";
  for (int i = 0; texts[1].size() < 3 * kPieceBytes; ++i) texts[1] += (i % 2 == 0 ? "Some\n" : "\twords.\n\n");
  for (int i = 0; texts[2].size() < 2 * kPieceBytes; ++i) texts[2] += "some words of it\nand ";
  return texts;
}

TEST(ReadTokenDataTest, PiecesOfALongTextHaveTheTokensOfTheWhole) {
  for (const char* path :
       {"models/tale-14m", "tests/cases/legacy_false", "tests/golden/tokenizers/own_bytelevel_llama3",
        "tests/golden/tokenizers/own_bytelevel_qwen2", "tests/golden/tokenizers/tale14m_metaspace",
        "tests/golden/tokenizers/tale14m_metaspace_always"}) {
    const std::unique_ptr<Tokenizer> tokenizer = Load(path);
    for (const std::string& text : LongTexts()) {
      const std::string_view trimmed = base::Trimmed(text);
      std::vector<int32_t> expected =
          tokenizer->Encode(trimmed, {.parse_special = false, .add_bos = tokenizer->adds_bos()});
      if (tokenizer->eos_id() >= 0) expected.push_back(tokenizer->eos_id());
      EXPECT_EQ(Read({text}, {}, *tokenizer).tokens, expected) << path;
      const base::Json json = {{"text", trimmed}};
      EXPECT_EQ(Read({json.dump()}, {}, *tokenizer).tokens, expected) << path;
    }
  }
}

TEST(ReadTokenDataTest, MaxTokensMayCutALongText) {
  const TokenData data = Read({LongTexts()[0], "next"}, {.max_tokens = 10});
  EXPECT_THAT(data.ends, ElementsAre(10));
  EXPECT_EQ(data.tokens.size(), 10U);
}

TEST(ReadTokenDataTest, ThreadsGiveTheSameTokens) {
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    lines += std::string(i % 7 == 0 ? kBadChat : kChat) + "\n{\"text\": \"Number " + std::to_string(i) + "\"}\n";
  }
  std::string text = "a";
  for (int i = 0; i < 9000; ++i) text += " b" + std::to_string(i);
  ReadOptions options = Vicuna();
  const TokenData alone = Read({lines, text}, options);
  base::ThreadPool pool(3, false);
  options.pool = &pool;
  EXPECT_EQ(Read({lines, text}, options), alone);
  EXPECT_EQ(ContentHash(Read({lines, text}, options)), ContentHash(alone));
}

TEST(ReadTokenDataTest, MaxTokensCutsAndReadsNoFurther) {
  const std::string text = "Hi you<|endoftext|>Hi you<|endoftext|>Hi you";
  EXPECT_THAT(Marked(Read({text}, {.max_tokens = 6})), ElementsAre("<s>|{ Hi}|{ you}|{</s>}", "<s>|{ Hi}"));
  EXPECT_THAT(Marked(Read({text}, {.max_tokens = 4})), ElementsAre("<s>|{ Hi}|{ you}|{</s>}"));
  EXPECT_EQ(Read({text}, {.max_tokens = 1000}).tokens.size(), 12U);
  // Neither the line behind it nor the next file counts.
  EXPECT_THAT(Marked(Read({"{\"text\": \"Hi you\"}\nno JSON", ""}, {.max_tokens = 3})),
              ElementsAre("<s>|{ Hi}|{ you}"));
  EXPECT_THROW(Read({"{\"text\": \"Hi you\"}\nno JSON"}, {.max_tokens = 5}), FileError);
}

TEST(ReadTokenDataTest, WhatIsLeftOutIsCounted) {
  ReadOptions options = Vicuna();
  std::vector<std::string> warnings;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  const std::string lines = std::string(kBadChat) + "\n" + kChat + "\n" + kBadChat + "\n{\"text\": \"\"}";
  EXPECT_EQ(Read({lines, kChat}, options).ends.size(), 2U);
  EXPECT_THAT(warnings,
              ElementsAre(testing::EndsWith("f0: left out 3 of 4 documents: 1 without text, 2 whose roles are "
                                            "not user and assistant in turns")));
  options.warn = {};
  EXPECT_EQ(Read({lines}, options).ends.size(), 1U);
}

TEST(ReadTokenDataTest, ProgressGrowsToOneAndMayEndTheWork) {
  std::vector<double> shares;
  ReadOptions options;
  options.progress = [&](double share) { shares.push_back(share); };
  Read({"a b", "c d e f g h"}, options);
  EXPECT_THAT(shares, ElementsAre(testing::DoubleNear(3.0 / 14, 1e-9), 1, 1));
  options.progress = [](double) { throw std::runtime_error("enough"); };
  EXPECT_THROW(Read({"a b"}, options), std::runtime_error);
}

TEST(ReadTokenDataTest, TextThatIsNoUtf8IsReadAsTheTokenizerReadsIt) {
  EXPECT_EQ(Read({"a \xFF b"}, {}).tokens, Read({"a \xEF\xBF\xBD b"}, {}).tokens);
  ExpectRefused<FileError>({"{\"text\": \"a\"}\n{\"text\": \"\xFF\"}"}, {}, "f0 line 2: is not valid JSON");
}

TEST(ReadTokenDataTest, FilesWithoutDataAreRefused) {
  ExpectRefused<FileError>({"a b", ""}, {}, "f1: is empty, expected text or JSON");
  ExpectRefused<FileError>({"<|endoftext|>"}, {}, "f0: has no document to learn from");
  ExpectRefused<FileError>({"[]"}, {}, "f0: has no document to learn from");
  ExpectRefused<FileError>(
      {kBadChat}, Vicuna(),
      "f0: has no document to learn from: 1 whose roles are not user and assistant in turns left out",
      "give texts, or conversations");
  ExpectRefused<FileError>({"Hi"}, {.max_tokens = 1}, "f0: there are 1 tokens and none to learn", "give more");
  ExpectRefused<FileError>({"{\"text\": \"a\"}\nno JSON"}, {}, "f0 line 2: is not valid JSON");
  ExpectRefused<FileError>({"{\"text\": \"a\"}\n{\"story\": \"b\"}"}, {}, "f0 line 2: the JSON value is");
  EXPECT_THROW(ReadTokenData(std::vector<std::string>{"/no/such/file"}, Tale(), {}), FileError);
  EXPECT_THROW(ReadTokenData(std::vector<std::string>{}, Tale(), {}), UserError);
}

// Gives up on a text, as the split pattern of a tokenizer.json can.
class TiredTokenizer : public WrappedTokenizer {
 public:
  using WrappedTokenizer::WrappedTokenizer;
  std::vector<int32_t> Encode(std::string_view text, const tokenizer::EncodeOptions& options) const override {
    if (text.find("Bye") != std::string_view::npos) throw UserError("the pattern gives up", "shorten the text");
    return WrappedTokenizer::Encode(text, options);
  }
};

TEST(ReadTokenDataTest, WhatATokenizerRefusesHasItsPlace) {
  const TiredTokenizer tired(Tale());
  try {
    Read({"Hi\n<|endoftext|>\nBye"}, {}, tired);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::EndsWith("f0 line 3: the pattern gives up"));
    EXPECT_EQ(error.hint(), "shorten the text");
  }
}

TEST(ReadTokenDataTest, ConversationsOfManyLongMessagesAreLeftOut) {
  base::Json messages = {{{"role", "user"}, {"content", std::string(size_t{1} << 20, 'x')}}};
  for (int i = 1; i < 258; ++i) messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "b"}});
  const base::Json chat = {{"messages", messages}};
  ExpectRefused<FileError>({chat.dump()}, Vicuna(), "f0: has no document to learn from: 1 too long left out");
}

TEST(ReadTokenDataTest, OptionsThatCannotBeFollowedAreRefused) {
  ExpectRefused<FileError>({std::string("{\"text\": \"a\"}\n") + kChat}, {},
                           "f0 line 2: is a conversation, and the model has no chat template",
                           "RenderChat::template_name (vicuna, ");
  ExpectRefused<UserError>({kChat}, {.template_name = "vicunia"}, "there is no chat template \"vicunia\"", "vicuna");
  ExpectRefused<UserError>({"a"}, {.max_tokens = -1}, "ReadOptions::max_tokens is -1, expected 0 or more");
  ReadOptions mistral{.template_name = "mistral", .template_tokens = tokenizer::UsualTokens("mistral")};
  ExpectRefused<FileError>(
      {R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"},
      mistral, "1 that the chat template refuses left out");
}

TEST(ContentHashTest, EveryPartCountsAndTheValueIsFixed) {
  const TokenData data{.tokens = {1, 2, 3}, .learned = {0, 1, 1}, .ends = {3}};
  EXPECT_EQ(ContentHash(data), 0x5BE05D11CFC627C5U);
  EXPECT_EQ(ContentHash({}), 0xA706DD2F4D197E6FU);
  EXPECT_NE(ContentHash({.tokens = {1, 2, 4}, .learned = {0, 1, 1}, .ends = {3}}), ContentHash(data));
  EXPECT_NE(ContentHash({.tokens = {1, 2, 3}, .learned = {0, 0, 1}, .ends = {3}}), ContentHash(data));
  EXPECT_NE(ContentHash({.tokens = {1, 2, 3}, .learned = {0, 1, 1}, .ends = {2, 3}}), ContentHash(data));
  EXPECT_NE(ContentHash({.tokens = {2, 1, 3}, .learned = {0, 1, 1}, .ends = {3}}), ContentHash(data));
}

}  // namespace
}  // namespace hydrant::train::token_data_test
