// SPDX-License-Identifier: Apache-2.0
#include "tree/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::tree::parse_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTree = "[[0],[1],[0,0]]";

std::string Refusal(const std::string& text) {
  try {
    ParseTree(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParseTest, Literal) {
  const NamedTopology named = ParseTree(" [[1],\n[0],[0,0]] ");
  EXPECT_EQ(named.name, "custom");
  EXPECT_EQ(ToJson(named.topology), kTree);
  EXPECT_EQ(ToJson(ParseTree("[[0,0,0,0],[0,1,0],[1,0]]").topology),
            "[[0],[1],[0,0],[0,1],[1,0],[0,0,0],[0,1,0],[0,0,0,0]]");
}

TEST(ParseTest, PresetName) {
  EXPECT_EQ(ParseTree("mc_sim_7b_63").name, "mc_sim_7b_63");
  EXPECT_EQ(ToJson(ParseTree("chain").topology), "[[0],[0,0],[0,0,0],[0,0,0,0]]");
}

TEST(ParseTest, Files) {
  const test::TempDir dir;
  const Topology expected = ParseTree(kTree).topology;
  for (const std::string text : {
           R"([[0],[0,0],[1]])",
           R"({"tree": [[0,0],[1]]})",
           R"({"name": "mine", "choices": [[0],[0,0],[1]]})",
           R"({"trees": [{"nodes": 3, "choices": [[0,0],[1]], "share": 0.5}]})",
           R"({"machine": "m", "trees": [{"choices": [[0]]}, {"choices": [[0,0],[1]]}], "default": 1})",
       }) {
    const std::string file = dir.Write("tree.json", text);
    const NamedTopology named = ParseTree(file);
    EXPECT_EQ(named.topology, expected) << text;
    EXPECT_EQ(named.name, file);
  }
}

TEST(ParseTest, FileErrorsBeginWithTheFile) {
  const test::TempDir dir;
  for (const std::string text :
       {"", "[[0],[0,0,0]]", "[[0]", "7", "\"mc_sim_7b_63\"", "{}", R"({"tree": 3})", R"({"trees": []})",
        R"({"trees": [{}]})", R"({"trees": [[[0]]]})", R"({"trees": [{"choices": [[0]]}], "default": 1})",
        R"({"trees": [{"choices": [[0]]}], "default": -1})",
        R"({"trees": [{"choices": [[0]]}, {"choices": [[0]]}]})"}) {
    const std::string file = dir.Write("bad.json", text);
    EXPECT_THAT(Refusal(file), StartsWith(file + ": ")) << text;
  }
  EXPECT_THAT(Refusal(dir.path()), StartsWith(dir.path() + ": "));
  EXPECT_THAT(Refusal(dir.Write("big.json", std::string(5 << 20, ' '))), HasSubstr("at most"));
}

TEST(ParseTest, RefusalsQuoteThePath) {
  EXPECT_EQ(Refusal("[[0],[0,0,0]]"), "EngineOptions::tree: path [0,0,0] lacks its prefix [0,0], which is not listed");
  EXPECT_EQ(Refusal("[[0],[0,-1]]"),
            "EngineOptions::tree: path [0,-1] has the rank -1, expected an integer from 0 to 4095");
  EXPECT_EQ(Refusal("[[0],[0.5]]"),
            "EngineOptions::tree: path [0.5] has the rank 0.5, expected an integer from 0 to 4095");
  EXPECT_THAT(Refusal("[[9223372036854775808]]"), HasSubstr("has the rank 9223372036854775808, expected"));
  EXPECT_THAT(Refusal("[[1e999]]"), StartsWith("EngineOptions::tree: "));
  EXPECT_THAT(Refusal("[[true]]"), HasSubstr("path [true] has the rank true"));
  EXPECT_THAT(Refusal("[[[0]]]"), HasSubstr("has the rank [0]"));
  EXPECT_EQ(Refusal("[0,0]"), "EngineOptions::tree: '[0]' is 0, expected a path: a list of child ranks such as [0,1]");
  EXPECT_THAT(Refusal("[]"), HasSubstr("the tree is empty"));
  EXPECT_THAT(Refusal("[[]]"), HasSubstr("is empty"));
  EXPECT_THAT(Refusal("[[0],[0]]"), HasSubstr("path [0] is listed twice"));
}

TEST(ParseTest, HostileSizes) {
  EXPECT_THAT(Refusal(std::string(200000, '[')), HasSubstr("nested deeper than"));
  std::string many = "[[0]";
  for (int i = 0; i < 5000; ++i) many += ",[0]";
  EXPECT_THAT(Refusal(many + "]"), HasSubstr("at most 4095"));
  std::string deep = "[[0";
  for (int i = 0; i < 5000; ++i) deep += ",0";
  const std::string refusal = Refusal(deep + "]]");
  EXPECT_THAT(refusal, HasSubstr("5001 deep"));
  EXPECT_LT(refusal.size(), 200U);
}

TEST(ParseTest, UnknownNameSuggestsTheNearest) {
  try {
    ParseTree("mc_sim_7b_36");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "EngineOptions::tree: \"mc_sim_7b_36\" is neither a preset nor a file");
    EXPECT_THAT(error.hint(), StartsWith("did you mean 'mc_sim_7b_63'?"));
    EXPECT_THAT(error.hint(), HasSubstr("zephyr_stage2"));
  }
  EXPECT_THAT(Refusal(""), HasSubstr("neither"));
  EXPECT_THAT(Refusal(std::string("\0\xff", 2)), HasSubstr("neither"));
}

}  // namespace
}  // namespace hydrant::tree::parse_test
