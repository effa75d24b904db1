// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace hydrant::base::nearest_test {
namespace {

constexpr std::array<std::string_view, 6> kFlags = {"--temperature", "--top-k",      "--top-p",
                                                    "--min-p",       "--max-tokens", "--model"};

TEST(NearestTest, FindsSlips) {
  EXPECT_EQ(Nearest("--temprature", kFlags), "--temperature");
  EXPECT_EQ(Nearest("--tempreature", kFlags), "--temperature");
  EXPECT_EQ(Nearest("--max_tokens", kFlags), "--max-tokens");
  EXPECT_EQ(Nearest("--MODEL", kFlags), "--model");
  EXPECT_EQ(Nearest("--modle", kFlags), "--model");
}

TEST(NearestTest, EqualsGoToTheFirst) { EXPECT_EQ(Nearest("--top-x", kFlags), "--top-k"); }

TEST(NearestTest, CompletesPrefixes) {
  EXPECT_EQ(Nearest("--temp", kFlags), "--temperature");
  EXPECT_EQ(Nearest("--", kFlags), "");
}

TEST(NearestTest, NothingCloseIsEmpty) {
  EXPECT_EQ(Nearest("zzzzzz", kFlags), "");
  EXPECT_EQ(Nearest("", kFlags), "");
  EXPECT_EQ(Nearest(std::string(5000, 'a'), kFlags), "");
  EXPECT_EQ(Nearest("--model", {}), "");
  constexpr std::array<std::string_view, 1> kOne = {"ab"};
  EXPECT_EQ(Nearest("x", kOne), "");
  EXPECT_EQ(Nearest("xy", kOne), "");
}

}  // namespace
}  // namespace hydrant::base::nearest_test
