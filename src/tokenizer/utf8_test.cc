// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "tokenizer/decoder.h"
#include "tokenizer/json/byte_level.h"

namespace hydrant::tokenizer::utf8_test {
namespace {

TEST(Utf8Test, ReadsTheFirstAndLastCharacterOfEveryLength) {
  for (const char32_t code : {0x0U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xD7FFU, 0xE000U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    std::string text;
    AppendUtf8(code, &text);
    const Utf8Char read = NextChar(text + "x");
    EXPECT_EQ(read.code, code);
    EXPECT_EQ(read.size, text.size());
    EXPECT_EQ(read.state, CharState::kValid);
  }
}

TEST(Utf8Test, ReplacesEveryMaximalBadPartOnce) {
  const std::string bad(kReplacement);
  EXPECT_EQ(ReplaceInvalid("a\xFF"), "a" + bad);
  EXPECT_EQ(ReplaceInvalid("\x80\x80"), bad + bad);
  EXPECT_EQ(ReplaceInvalid("\xE4\xBD"), bad);  // cut: one
  EXPECT_EQ(ReplaceInvalid("\xE4\xBD"
                           "A"),
            bad + "A");                                                  // broken off: one
  EXPECT_EQ(ReplaceInvalid("\xC0\xAF"), bad + bad);                      // overlong
  EXPECT_EQ(ReplaceInvalid("\xED\xA0\x80"), bad + bad + bad);            // surrogate
  EXPECT_EQ(ReplaceInvalid("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // above U+10FFFF
  EXPECT_EQ(ReplaceInvalid("\xF0\x9F\x98"), bad);
}

TEST(Utf8Test, HoldsBackOnlyWhatMayStillBecomeACharacter) {
  std::string held = "a\xF0\x9F";
  EXPECT_EQ(TakeComplete(&held), "a");
  EXPECT_EQ(held, "\xF0\x9F");
  held += "\x98\x80";
  EXPECT_EQ(TakeComplete(&held), "\xF0\x9F\x98\x80");
  held =
      "\xF0\x9F"
      "A";
  EXPECT_EQ(TakeComplete(&held), std::string(kReplacement) + "A");
  EXPECT_EQ(held, "");
}

TEST(Utf8Test, StripsWhatPythonStrips) {
  EXPECT_EQ(StripLikePython(" \t\n\x1C\xC2\xA0 a b \xE3\x80\x80\n"), "a b");
  EXPECT_EQ(StripLikePython("\xE2\x80\x8B"), "\xE2\x80\x8B");  // a zero-width space is no white space
  EXPECT_EQ(StripLikePython(" \n "), "");
}

TEST(Utf8Test, KnowsWordsAndSpaces) {
  EXPECT_TRUE(EndsWithWordChar("x\xC3\xA9"));
  EXPECT_FALSE(EndsWithWordChar("x\xF0\x9F\x98\x80"));
  EXPECT_FALSE(StartsWithWordChar(""));
  EXPECT_TRUE(StartsWithWordChar("_"));
  EXPECT_EQ(LeadingSpace(" \xC2\xA0x"), 3U);
  EXPECT_EQ(TrailingSpace("x \xC2\xA0"), 3U);
  EXPECT_EQ(TrailingSpace("  "), 2U);
}

TEST(ByteLevelTest, WritesEveryByteAsALetterAndBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string letters = BytesToLetters(bytes);
  EXPECT_TRUE(IsValidUtf8(letters));
  EXPECT_EQ(LettersToBytes(letters), bytes);
  EXPECT_EQ(BytesToLetters(" \n"), "\xC4\xA0\xC4\x8A");
  EXPECT_EQ(LettersToBytes(" "), std::nullopt);
  EXPECT_EQ(LettersToBytes("\xE4\xBD\xA0"), std::nullopt);
}

TEST(ByteTokenTest, IsWrittenInHexadecimal) {
  EXPECT_EQ(ParseByteToken("<0x0A>"), 10);
  EXPECT_EQ(ParseByteToken("<0xFF>"), 255);
  EXPECT_EQ(ParseByteToken("<0xFG>"), -1);
  EXPECT_EQ(ParseByteToken("<0x0A"), -1);
}

}  // namespace
}  // namespace hydrant::tokenizer::utf8_test
