// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/escape.h"

#include <gtest/gtest.h>

#include "cli/terminal/errors.h"

namespace hydrant::cli::escape_test {
namespace {

TEST(EscapeTest, ControlCharactersAreShownNotObeyed) {
  EXPECT_EQ(Escaped("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Escaped("\a\b\x7f"), "\\x07\\x08\\x7f");
  EXPECT_EQ(Escaped(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Escaped("\xc2\x9b"
                    "31m"),
            "\\u009b31m");
  EXPECT_EQ(Escaped("\x9b"
                    "31m"),
            "\\x9b31m");  // what an 8-bit terminal takes for the same
  EXPECT_EQ(Escaped("a\n\tb\r", "\n\t\r"), "a\n\tb\r");
  EXPECT_EQ(Escaped("a\n"), "a\\x0a");
}

TEST(EscapeTest, OtherTextStaysAsItIs) {
  for (const char* text : {"", "plain", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc2\xa0", "\\x1b", "\xe2\x80\xae"}) {
    EXPECT_EQ(Escaped(text), text);
  }
  EXPECT_EQ(EscapedName("gpj\xe2\x80\xae.txt"), "gpj\\u202e.txt");
}

TEST(EscapeTest, WhatIsNoUtf8IsShownByteByByte) {
  EXPECT_EQ(Escaped("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Escaped("\xc0\x9b"), "\\xc0\\x9b");           // an overlong ESC
}

TEST(EscapeTest, ErrorsEscapeToo) {
  EXPECT_EQ(ErrorText("m/\x1b]0;x\a: 'a\xc2\x9b' is\nbad", "do\x1b"),
            "error: m/\\x1b]0;x\\x07: 'a\\u009b' is\n       bad\nhint:  do\\x1b\n");
}

}  // namespace
}  // namespace hydrant::cli::escape_test
