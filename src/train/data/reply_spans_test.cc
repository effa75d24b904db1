// SPDX-License-Identifier: Apache-2.0
#include "train/data/reply_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "hydrant/error.h"
#include "tests/test_data.h"
#include "train/data/wrapped_tokenizer.h"

namespace hydrant::train::reply_spans_test {
namespace {

using testing::ElementsAre;
using tokenizer::Message;
using tokenizer::Tokenizer;

const std::vector<Message> kTwoTurns = {
    {"system", "Be kind."}, {"user", "Hi"}, {"assistant", "Hello!"}, {"user", "Bye"}, {"assistant", "See you."}};
const std::vector<Message> kNoSystem(kTwoTurns.begin() + 1, kTwoTurns.end());

std::unique_ptr<Tokenizer> Load(const std::string& path) {
  return tokenizer::LoadTokenizer(test::SourceDir() + "/" + path);
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, {.parse_special = true, .add_bos = false});
}

RenderedChat Rendered(std::string_view name, const std::vector<Message>& messages) {
  return RenderChat({std::string(name), tokenizer::UsualTokens(name)}, messages).value();
}

// Tokens between bars, those that are learned in braces.
std::string Marked(const Tokenizer& tokenizer, const RenderedChat& chat) {
  const std::vector<int32_t> tokens = Encode(tokenizer, chat.text);
  const std::vector<uint8_t> learned = LearnedTokens(tokenizer, chat, tokens).value();
  std::string words;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string bytes = tokenizer.TokenBytes(tokens[i], false);
    words += (i == 0 ? "" : "|") + (learned[i] == 1 ? "{" + bytes + "}" : bytes);
  }
  return words;
}

// Does not say what its tokens stand for.
class SilentTokenizer : public WrappedTokenizer {
 public:
  using WrappedTokenizer::WrappedTokenizer;
  std::string TokenBytes(int32_t, bool) const override { return "?"; }
};

TEST(LearnedTokensTest, TwoTurnsOfTheDefaultModelByHand) {
  EXPECT_EQ(Marked(*Load("models/tale-14m"), Rendered("vicuna", kTwoTurns)),
            "<s>| Be| kind|.| U|S|ER|:| Hi| A|S|S|IS|T|AN|T|:|{ H}|{ello}|{!}|{</s>}"
            "| U|S|ER|:| By|e| A|S|S|IS|T|AN|T|:|{ Se}|{e}|{ you}|{.}|{</s>}");
}

// Of the line break behind <|im_end|> a model says nothing.
TEST(LearnedTokensTest, TwoTurnsOfATokenizerJsonByHand) {
  EXPECT_EQ(
      Marked(*Load("tests/cases/added_tokens"), Rendered("chatml_plain", kNoSystem)),
      "<|im_start|>|user|\n|Hi|<|im_end|>|\n|<|im_start|>|assistant|\n|{H}|{e}|{llo}|{!}|{<|im_end|>}|\n"
      "|<|im_start|>|user|\n|B|y|e|<|im_end|>|\n|<|im_start|>|assistant|\n|{S}|{e}|{e}|{ you}|{.}|{<|im_end|>}|\n");
}

// What is learned, told from its place in the text, is what the assistant says and the end of it.
TEST(RenderChatTest, RepliesOfEveryTemplateBeginBehindThePromptAndEndWithTheirToken) {
  for (const std::string_view name : tokenizer::TemplateNames()) {
    const RenderedChat chat = Rendered(name, kNoSystem);
    const std::string end = tokenizer::EndOfReply(name, tokenizer::UsualTokens(name));
    ASSERT_EQ(chat.replies.size(), 2U) << name;
    const auto text = [&](size_t i) {
      return chat.text.substr(chat.replies[i].begin, chat.replies[i].end - chat.replies[i].begin);
    };
    const std::string before = name == "vicuna" || name == "vicuna_newline_variant" || name == "llama-2" ? " " : "";
    const std::string behind = name == "llama-2" ? " " : "";
    EXPECT_EQ(text(0), before + "Hello!" + behind + end) << name;
    EXPECT_EQ(text(1), before + "See you." + behind + end) << name;
  }
}

TEST(RenderChatTest, ReplyThatSpellsItsHeaderIsFound) {
  const std::vector<Message> messages = {{"user", "ASSISTANT: "}, {"assistant", "ASSISTANT: </s>A"}};
  for (const std::string_view name : {"vicuna", "vicuna_newline_variant"}) {
    const RenderedChat chat = Rendered(name, messages);
    EXPECT_EQ(chat.text.substr(chat.replies[0].begin, chat.replies[0].end - chat.replies[0].begin),
              " ASSISTANT: </s>A</s>");
  }
}

TEST(RenderChatTest, ConversationsOfTooManyLongMessagesAreNotRendered) {
  std::vector<Message> messages = {{"user", std::string(size_t{1} << 20, 'x')}, {"assistant", "a"}};
  while (messages.size() < 258) messages.push_back({messages.size() % 2 == 0 ? "user" : "assistant", ""});
  EXPECT_FALSE(RenderChat({"vicuna", {}}, messages).has_value());
}

TEST(RenderChatTest, WhatTheTemplateRefusesIsThrown) {
  EXPECT_THROW(Rendered("mistral", kTwoTurns), UserError);
  EXPECT_THROW(static_cast<void>(RenderChat({"none", {}}, kTwoTurns)), UserError);
}

// Each token's bytes lie one behind another and are those that the tokenizer says, but for spaces of its own.
TEST(SpansOfTokensTest, TokensOfEveryTokenizerCoverTheText) {
  const std::string text = "<s>A caf\xC3\xA9's \n\n  5 of \xF0\x9F\x98\x80</s> two<|eot_id|><|im_end|>  \xE4\xBD\xA0 ";
  for (const char* path :
       {"models/tale-14m", "models/tale-14m/tokenizer.model", "tests/cases/added_tokens", "tests/cases/legacy_false",
        "tests/cases/end_of_turn", "tests/golden/tokenizers/own_bytelevel_llama3",
        "tests/golden/tokenizers/own_bytelevel_qwen2", "tests/golden/tokenizers/tale14m_legacy",
        "tests/golden/tokenizers/tale14m_metaspace", "tests/golden/tokenizers/tale14m_metaspace_always"}) {
    const std::unique_ptr<Tokenizer> tokenizer = Load(path);
    const std::vector<int32_t> tokens = Encode(*tokenizer, text);
    const auto spans = SpansOfTokens(*tokenizer, text, tokens);
    ASSERT_TRUE(spans.has_value()) << path;
    size_t at = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const ByteSpan span = (*spans)[i];
      EXPECT_EQ(span.begin, at) << path;
      const std::string bytes = tokenizer->TokenBytes(tokens[i], false);
      const std::string found = text.substr(span.begin, span.end - span.begin);
      EXPECT_TRUE(bytes == found || bytes == " " + found) << path << ": " << bytes << ", " << found;
      at = span.end;
    }
    EXPECT_EQ(at, text.size()) << path;
  }
}

TEST(SpansOfTokensTest, BlanksThatATokenizerDropsBelongToNoToken) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("models/tale-14m");
  const std::vector<int32_t> tokens = Encode(*tokenizer, "<s>a b");  // as if of the text below
  const auto spans = SpansOfTokens(*tokenizer, "\n <s>  a   b\n", tokens);
  ASSERT_TRUE(spans.has_value());
  EXPECT_EQ(spans->front(), (ByteSpan{2, 5}));
  EXPECT_EQ(spans->back().end, 12U);
}

TEST(SpansOfTokensTest, OtherTextHasNone) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("models/tale-14m");
  const std::vector<int32_t> tokens = Encode(*tokenizer, "Hello you");
  EXPECT_TRUE(SpansOfTokens(*tokenizer, "Hello you", tokens).has_value());
  EXPECT_FALSE(SpansOfTokens(*tokenizer, "Hello your", tokens).has_value());
  EXPECT_FALSE(SpansOfTokens(*tokenizer, "Helloyou", tokens).has_value());  // one space too many, not at the front
  EXPECT_FALSE(SpansOfTokens(*tokenizer, "Hello", tokens).has_value());
  EXPECT_FALSE(SpansOfTokens(*tokenizer, "hello you", tokens).has_value());
}

// One space at the front of a text is a tokenizer's own; no second one, and none later.
TEST(SpansOfTokensTest, OnlyOneSpaceMayBeMissing) {
  const std::unique_ptr<Tokenizer> tale = Load("models/tale-14m");
  EXPECT_TRUE(SpansOfTokens(*tale, " Hello", Encode(*tale, " Hello")).has_value());
  EXPECT_TRUE(SpansOfTokens(*tale, "  Hello", Encode(*tale, "  Hello")).has_value());
  EXPECT_FALSE(SpansOfTokens(*tale, "Hello", Encode(*tale, " Hello")).has_value());
  const std::unique_ptr<Tokenizer> bytes = Load("tests/cases/added_tokens");
  EXPECT_TRUE(SpansOfTokens(*bytes, "Hello you", Encode(*bytes, "Hello you")).has_value());
  EXPECT_FALSE(SpansOfTokens(*bytes, "Helloyou", Encode(*bytes, "Hello you")).has_value());
}

// The slow way and the quick one.
TEST(LearnedTokensTest, CountingGivesTheSameAsWalking) {
  for (const char* path :
       {"models/tale-14m", "tests/cases/added_tokens", "tests/golden/tokenizers/tale14m_metaspace"}) {
    const std::unique_ptr<Tokenizer> tokenizer = Load(path);
    for (const std::string_view name : tokenizer::TemplateNames()) {
      const RenderedChat chat = Rendered(name, kNoSystem);
      const std::vector<int32_t> tokens = Encode(*tokenizer, chat.text);
      EXPECT_EQ(LearnedTokens(SilentTokenizer(*tokenizer), chat, tokens), LearnedTokens(*tokenizer, chat, tokens))
          << path << " " << name;
    }
  }
}

// NFC makes one letter of two, so that the bytes are others.
TEST(LearnedTokensTest, TextThatANormalizerChangesIsCounted) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("tests/cases/added_tokens");
  const RenderedChat chat = Rendered("chatml_plain", {{"user", "cafe\xCC\x81"}, {"assistant", "Hi"}});
  ASSERT_FALSE(SpansOfTokens(*tokenizer, chat.text, Encode(*tokenizer, chat.text)).has_value());
  EXPECT_THAT(Marked(*tokenizer, chat), testing::EndsWith("|assistant|\n|{Hi}|{<|im_end|>}|\n"));
}

TEST(LearnedTokensTest, ManyRepliesBehindMuchTextAreNotCounted) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("tests/cases/added_tokens");
  const size_t size = tokenizer::kMostTextBytes / 20;
  RenderedChat chat{.text = std::string(size, ' '), .replies = {11, ByteSpan{size - 1, size}}};
  EXPECT_FALSE(LearnedTokens(SilentTokenizer(*tokenizer), chat, std::vector<int32_t>{1, 2}).has_value());
}

}  // namespace
}  // namespace hydrant::train::reply_spans_test
