// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gtest/gtest.h>

#include "hydrant/error.h"

namespace hydrant::base::json_test {
namespace {

std::string MessageOf(const std::string& text) {
  try {
    ParseJson(text, "f.json");
  } catch (const FileError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(JsonTest, ReadsWhatTheLibraryReads) {
  const std::string text =
      R"({"a":[1,-2,3.5,true,null,"x\u00e9",[],{}],"b":{"c":{"d":[[1],[2,{"e":18446744073709551615}]]}},"":0})";
  EXPECT_EQ(ParseJson(text, "f.json"), Json::parse(text));
  EXPECT_EQ(ParseJson(" 7 ", "f.json"), Json(7));
}

TEST(JsonTest, RefusesKeysThatStandTwiceInOneObject) {
  EXPECT_EQ(MessageOf(R"({"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}]})"), "accepted");
  EXPECT_EQ(MessageOf(R"({"b":{"a":{"x":1},"a":2}})"), "f.json: JSON key \"a\" appears twice in one object");
}

TEST(JsonTest, RefusesDeepNesting) {
  EXPECT_EQ(MessageOf(std::string(64, '[') + std::string(64, ']')), "accepted");
  EXPECT_EQ(MessageOf(std::string(65, '[') + std::string(65, ']')), "f.json: JSON is nested deeper than 64 levels");
  EXPECT_EQ(MessageOf(std::string(100000, '[')), "f.json: JSON is nested deeper than 64 levels");
}

TEST(JsonTest, RefusesMalformedText) {
  for (const char* text : {"", "{", "[1,]", "{\"a\"}", "nul", "1 2", "\"\xFF\"", "1e999", "{\"a\":1}}"}) {
    EXPECT_EQ(MessageOf(text).substr(0, 25), "f.json: is not valid JSON") << text;
    EXPECT_EQ(MessageOf(text).find("json.exception"), std::string::npos) << MessageOf(text);
  }
  EXPECT_LT(MessageOf("[\"" + std::string(5000, 'a')).size(), 400U);
}

}  // namespace
}  // namespace hydrant::base::json_test
