// SPDX-License-Identifier: Apache-2.0
#include "train/tokenizer/sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "hydrant/error.h"
#include "tests/test_data.h"
#include "train/data/documents.h"

namespace hydrant::train::sentences_test {
namespace {

using testing::ElementsAre;
using Lines = std::vector<std::string>;

Lines LinesOf(const std::string& content, const SentenceOptions& options = {}) {
  const test::TempDir dir;
  return ReadSentences(Lines{dir.Write("data", content)}, options);
}

TEST(SentencesTest, AreTheLinesOfTextsAndMessages) {
  EXPECT_THAT(LinesOf("One.\r\n\n  Two. \n<|endoftext|>\nThree."), ElementsAre("One.", "  Two.", "Three."));
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "Hi\nthere"}, {"role": "assistant", "content": "Yes"}]})";
  EXPECT_THAT(LinesOf(chat + "\n{\"text\": \"a\"}\n"), ElementsAre("Hi", "there", "Yes", "a"));
  const Lines rendered = LinesOf(chat, {.template_name = "vicuna"});
  EXPECT_THAT(rendered.back(), testing::EndsWith("there ASSISTANT: Yes"));
  // A template's own refusal leaves the conversation out.
  const std::string system = R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
                                              {"role": "assistant", "content": "b"}]})";
  EXPECT_THAT(LinesOf("[" + system + ",\"c\"]", {.template_name = "mistral"}), ElementsAre("c"));
}

TEST(SentencesTest, LongLinesAreCutBetweenWords) {
  std::string text;
  while (text.size() < 3 * kPieceBytes) text += "word ";
  size_t words = 0;
  for (const std::string& line : LinesOf(text)) {
    EXPECT_LE(line.size(), kMostSentenceBytes);
    EXPECT_TRUE(line.starts_with("word")) << line.substr(0, 8);
    EXPECT_TRUE(line.ends_with("word") || line.ends_with("word "));
    words += (line.size() + 1) / 5;
  }
  EXPECT_EQ(words, text.size() / 5);
}

TEST(SentencesTest, ASampleIsOfTheSizeAndDrawnBySeed) {
  std::string text;
  for (int i = 1000; i < 3000; ++i) text += "Line " + std::to_string(i) + "\n";  // 9 bytes each without its end
  const auto sample = [&](uint64_t seed) { return LinesOf(text, {.most_bytes = 909, .seed = seed}); };
  const Lines one = sample(1);
  EXPECT_EQ(one.size(), 101U);
  EXPECT_TRUE(std::ranges::is_sorted(one));
  EXPECT_EQ(std::set<std::string>(one.begin(), one.end()).size(), one.size());
  EXPECT_EQ(sample(1), one);
  EXPECT_NE(sample(2), one);
  // From everywhere: of 101 lines a half each from the first and the second thousand, within 5 standard deviations.
  const auto low = std::ranges::count_if(one, [](const std::string& line) { return line < "Line 2000"; });
  EXPECT_NEAR(static_cast<double>(low), 50.5, 25);
}

TEST(SentencesTest, WhatNoPieceCanHaveIsLeftOut) {
  EXPECT_THAT(LinesOf(std::string("a\xff\nb\0c\nd", 8)), ElementsAre("d"));
  EXPECT_THROW(LinesOf("\xff\n\xfe"), FileError);
  EXPECT_THROW(ReadSentences({}, {}), UserError);
}

}  // namespace
}  // namespace hydrant::train::sentences_test
