// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::tokenizer::pre_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PreTokenizer Parsed(const std::string& json) {
  const base::Json value = base::ParseJson(json, "t.json");
  return PreTokenizer::Parse(base::JsonView(value, "t.json"));
}

std::vector<std::string> Words(const PreTokenizer& pre_tokenizer, const std::string& text, bool at_start = true) {
  std::vector<std::string> words;
  pre_tokenizer.Split(text, at_start, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::string SplitJson(const std::string& pattern) {
  const base::Json json = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return json.dump();
}

TEST(PreTokenizerTest, KeepsMatchesAndWhatLiesBetween) {
  EXPECT_THAT(Words(Parsed(SplitJson("[0-9]+")), "ab12cd3"), ElementsAre("ab", "12", "cd", "3"));
  EXPECT_THAT(Words(Parsed(SplitJson("(?=b)")), "abab"), ElementsAre("a", "ba", "b"));
  EXPECT_THAT(Words(Parsed(SplitJson("x*")), "\xC3\xA9xx\xC3\xA9"), ElementsAre("\xC3\xA9", "xx", "\xC3\xA9"));
  EXPECT_THAT(Words(Parsed("null"), "a b"), ElementsAre("a b"));
}

TEST(PreTokenizerTest, SplitsAsGpt2WithItsOwnPattern) {
  const PreTokenizer byte_level = Parsed(R"({"type":"ByteLevel","add_prefix_space":true})");
  EXPECT_THAT(Words(byte_level, "it's  12"), ElementsAre("\xC4\xA0it", "'s", "\xC4\xA0",
                                                         "\xC4\xA0"
                                                         "12"));
}

TEST(PreTokenizerTest, PrependsASpaceByScheme) {
  const auto metaspace = [](const std::string& scheme) {
    return Parsed(R"({"type":"Metaspace","replacement":"_","split":false,"prepend_scheme":")" + scheme + "\"}");
  };
  EXPECT_THAT(Words(metaspace("first"), "a b"), ElementsAre("_a_b"));
  EXPECT_THAT(Words(metaspace("first"), "a b", false), ElementsAre("a_b"));
  EXPECT_THAT(Words(metaspace("first"), " a"), ElementsAre("_a"));
  EXPECT_THAT(Words(metaspace("always"), "a", false), ElementsAre("_a"));
  EXPECT_THAT(Words(metaspace("never"), "a"), ElementsAre("a"));
}

TEST(PreTokenizerTest, RefusesWhatItCannotDoByName) {
  const auto message = [](const std::string& json) -> std::string {
    try {
      Parsed(json);
    } catch (const FileError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(R"({"type":"Digits"})"), HasSubstr("\"Digits\""));
  EXPECT_THAT(message(R"({"type":"Metaspace","replacement":"_"})"), HasSubstr("split"));
  EXPECT_THAT(message(R"({"type":"Metaspace","replacement":"__","split":false})"), HasSubstr("one character"));
  EXPECT_THAT(message(R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Removed"})"), HasSubstr("\"Removed\""));
  EXPECT_THAT(message(R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated","invert":true})"),
              HasSubstr("invert"));
  EXPECT_THAT(message(SplitJson("(a")), HasSubstr("does not compile"));
  EXPECT_THAT(message(SplitJson(R"(\C)")), HasSubstr("does not compile"));
}

TEST(PreTokenizerTest, GivesUpOnExponentialPatterns) {
  const PreTokenizer bad = Parsed(SplitJson("(?:(a|aa|aaa)+)+b"));
  EXPECT_THROW(Words(bad, std::string(200, 'a') + "cb"), UserError);
}

TEST(PreTokenizerTest, TakesLongTextsWithPublishedPatterns) {
  const PreTokenizer llama3 = Parsed(SplitJson(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"));
  EXPECT_EQ(Words(llama3, std::string(1 << 20, 'a')).size(), 1U);
  EXPECT_EQ(Words(llama3, std::string(1 << 20, ' ') + "a").size(), 2U);
  EXPECT_EQ(Words(llama3, std::string(1 << 20, '!')).size(), 1U);
}

}  // namespace
}  // namespace hydrant::tokenizer::pre_tokenizer_test
