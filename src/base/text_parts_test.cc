// SPDX-License-Identifier: Apache-2.0
#include "base/text_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::base::text_parts_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// "LINE:TEXT" of at most `most` parts.
std::vector<std::string> Lines(std::string_view text, size_t most = 100) {
  std::vector<std::string> parts;
  ForEachLine(text, [&](const TextPart& part) {
    parts.push_back(std::to_string(part.line) + ":" + std::string(part.text));
    return parts.size() < most;
  });
  return parts;
}

std::vector<std::string> Elements(std::string_view text, size_t most = 100) {
  std::vector<std::string> parts;
  ForEachElement(text, "f", [&](const TextPart& part) {
    parts.push_back(std::to_string(part.line) + ":" + std::string(part.text));
    return parts.size() < most;
  });
  return parts;
}

TEST(TextPartsTest, LinesAreTrimmedAndCounted) {
  EXPECT_THAT(Lines("a\r\n\n \t\n  b c \nd"), ElementsAre("1:a", "4:b c", "5:d"));
  EXPECT_THAT(Lines(""), ElementsAre());
}

TEST(TextPartsTest, ElementsMayHoldBracketsAndCommasInStrings) {
  EXPECT_THAT(Elements("\n[ {\"a\": [1,\n2]}, \"],\\\"\",\n7 ]\n"),
              ElementsAre("2:{\"a\": [1,\n2]}", "3:\"],\\\"\"", "4:7"));
  EXPECT_THAT(Elements("[]"), ElementsAre());
}

TEST(TextPartsTest, WhoeverHasEnoughGetsNoMoreAndNoErrorFromBehind) {
  EXPECT_THAT(Lines("a\nb\nc", 2), ElementsAre("1:a", "2:b"));
  EXPECT_THAT(Elements("[1, 2, 3", 2), ElementsAre("1:1", "1:2"));
}

TEST(TextPartsTest, BrokenArraysAreRefusedWithTheirLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"[1,\n2", "f line 2: ends within the array"},
                                                                  {"[1\n] x", "f line 2: has more behind the array"},
                                                                  {"[\n,1]", "f line 2: expected a value in front"},
                                                                  {"[1,\n]", "f line 2: expected a value behind"},
                                                                  {"", "f line 1: ends within"},
                                                                  {"[\"\\", "ends within"}};
  for (const auto& [text, part] : cases) {
    try {
      Elements(text);
      ADD_FAILURE() << text;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr(part)) << text;
    }
  }
}

}  // namespace
}  // namespace hydrant::base::text_parts_test
