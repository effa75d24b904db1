// SPDX-License-Identifier: Apache-2.0
#include "base/json_difference.h"

#include <gtest/gtest.h>

namespace hydrant::base::json_difference_test {
namespace {

// "name: found, expected", or "none".
std::string Difference(const char* found, const char* expected) {
  const auto difference = FirstDifference(ParseJson(found, "found"), ParseJson(expected, "expected"));
  if (!difference) return "none";
  return difference->name + ": " + DumpJson(difference->found) + ", " + DumpJson(difference->expected);
}

TEST(FirstDifferenceTest, NamesMembersAndElements) {
  EXPECT_EQ(Difference(R"({"a": {"b": [1, {"c": 2}]}})", R"({"a": {"b": [1, {"c": 3}]}})"), "a.b[1].c: 2, 3");
  EXPECT_EQ(Difference(R"({"a": [1, 2]})", R"({"a": [1, 3]})"), "a[1]: 2, 3");
  EXPECT_EQ(Difference(R"([[1], [2]])", R"([[1], [4]])"), "[1][0]: 2, 4");
}

TEST(FirstDifferenceTest, WhatIsMissingIsNull) {
  EXPECT_EQ(Difference(R"({"a": 1})", R"({"a": 1, "b": 2})"), "b: null, 2");
  EXPECT_EQ(Difference(R"({"a": {}})", R"({"a": {"b": false}})"), "a.b: null, false");
}

TEST(FirstDifferenceTest, OthersOfTheFoundOneDoNotCount) {
  EXPECT_EQ(Difference(R"({"a": 1, "b": 2})", R"({"a": 1})"), "none");
  EXPECT_EQ(Difference("{}", "{}"), "none");
}

TEST(FirstDifferenceTest, ListsOfOtherLengthsAndOtherTypesDifferWhole) {
  EXPECT_EQ(Difference(R"({"a": [1, 2]})", R"({"a": [1]})"), "a: [1,2], [1]");
  EXPECT_EQ(Difference(R"({"a": [1]})", R"({"a": {"b": 1}})"), R"(a: [1], {"b":1})");
  EXPECT_EQ(Difference("1", "2"), ": 1, 2");
}

}  // namespace
}  // namespace hydrant::base::json_difference_test
