// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace hydrant::tokenizer::added_tokens_test {
namespace {

// "text|<id>|text" for the pieces.
std::string Shown(const AddedTokenFinder& finder, const std::string& text, bool parse_special = true) {
  std::string shown;
  for (const auto& piece : finder.Split(text, parse_special)) {
    if (!shown.empty()) shown += "|";
    if (piece.id >= 0) {
      shown.append("<").append(std::to_string(piece.id)).append(">");
    } else {
      shown += text.substr(piece.begin, piece.end - piece.begin);
    }
  }
  return shown;
}

void Add(AddedTokenFinder* finder, const AddedToken& token) { finder->Add(token, token.content); }

TEST(AddedTokensTest, TakesTheLeftmostThenTheLongest) {
  AddedTokenFinder finder;
  Add(&finder, {.id = 1, .content = "ab"});
  Add(&finder, {.id = 2, .content = "abcd"});
  Add(&finder, {.id = 3, .content = "bcdef"});
  EXPECT_EQ(Shown(finder, "xabcdef"), "x|<2>|ef");
  EXPECT_EQ(Shown(finder, "abcx"), "<1>|cx");
  EXPECT_EQ(Shown(finder, ""), "");
  EXPECT_EQ(Shown(AddedTokenFinder(), "abc"), "abc");
}

TEST(AddedTokensTest, StripsSpaceBesideButNotInsideAnotherToken) {
  AddedTokenFinder finder;
  Add(&finder, {.id = 1, .content = "<l>", .lstrip = true});
  Add(&finder, {.id = 2, .content = "<r>", .rstrip = true});
  EXPECT_EQ(Shown(finder, "a \n<l> b"), "a|<1>| b");
  EXPECT_EQ(Shown(finder, "a <r>\n b"), "a |<2>|b");
  EXPECT_EQ(Shown(finder, "<r> <l>"), "<2>|<1>");
}

TEST(AddedTokensTest, KeepsSingleWordsOutOfWords) {
  AddedTokenFinder finder;
  Add(&finder, {.id = 1, .content = "cat", .single_word = true});
  EXPECT_EQ(Shown(finder, "cat concat cats cat's"), "<1>| concat cats |<1>|'s");
}

TEST(AddedTokensTest, LeavesSpecialTextWhenItIsNotParsed) {
  AddedTokenFinder finder;
  Add(&finder, {.id = 1, .content = "<s>", .special = true});
  Add(&finder, {.id = 2, .content = "plain"});
  EXPECT_EQ(Shown(finder, "a<s>plain", false), "a<s>|<2>");
}

}  // namespace
}  // namespace hydrant::tokenizer::added_tokens_test
