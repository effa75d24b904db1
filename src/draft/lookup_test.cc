// SPDX-License-Identifier: Apache-2.0
#include "draft/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace hydrant::draft::lookup_test {
namespace {

std::vector<int32_t> Find(const std::vector<int32_t>& text, int32_t min_match, int32_t max_tokens) {
  TokenLookup lookup(min_match);
  lookup.Append(text);
  const std::span<const int32_t> found = lookup.Find(max_tokens);
  return {found.begin(), found.end()};
}

// Every place, from the end, token by token.
std::vector<int32_t> FindSlowly(const std::vector<int32_t>& text, int32_t min_match, int32_t max_tokens) {
  const auto size = static_cast<int32_t>(text.size());
  int32_t best = -1, longest = min_match - 1, tried = 0;
  for (int32_t place = size - 2; place >= 0; --place) {
    int32_t match = 0;
    while (match <= place && match < TokenLookup::kLongestMatch &&
           text[static_cast<size_t>(place - match)] == text[static_cast<size_t>(size - 1 - match)]) {
      ++match;
    }
    if (match < min_match || ++tried > TokenLookup::kMostTried || match <= longest) continue;
    longest = match;
    best = place;
  }
  std::vector<int32_t> all = text, found;
  for (int32_t i = 0; best >= 0 && i < std::min(max_tokens, longest); ++i) {
    all.push_back(all[static_cast<size_t>(best + 1 + i)]);
    found.push_back(all.back());
  }
  return found;
}

TEST(LookupTest, FindsWhatFollowedTheLongestMatch) {
  //                       the one that agrees in 3 tokens .. | in 2, but later
  EXPECT_EQ(Find({1, 2, 3, 7, 8, 9, 4, 2, 3, 6, 5, 1, 2, 3}, 2, 8), (std::vector<int32_t>{7, 8, 9}));
}

TEST(LookupTest, OfEqualMatchesTheLatestCounts) {
  EXPECT_EQ(Find({2, 3, 7, 2, 3, 8, 2, 3}, 2, 1), (std::vector<int32_t>{8}));
}

TEST(LookupTest, NewTokensFindNothing) {
  EXPECT_TRUE(Find({}, 2, 8).empty());
  EXPECT_TRUE(Find({1, 2, 3}, 3, 8).empty());
  EXPECT_TRUE(Find({1, 2, 3, 4, 9, 3}, 2, 8).empty());
  EXPECT_TRUE(Find({1, 2, 1, 2, 1, 2}, 2, 0).empty());
}

TEST(LookupTest, AShortPeriodGoesOnIntoWhatIsDrafted) {
  EXPECT_EQ(Find({5, 1, 2, 1, 2, 1, 2}, 2, 4), (std::vector<int32_t>{1, 2, 1, 2}));
}

TEST(LookupTest, IsTheSlowSearchOverRandomTexts) {
  std::mt19937 random(7);
  for (int32_t i = 0; i < 3000; ++i) {
    const int32_t alphabet = 1 + i % 5, min_match = 1 + i % 4;
    std::vector<int32_t> text(random() % 150);
    for (int32_t& token : text) token = static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet)) * 1000003;
    const auto max_tokens = static_cast<int32_t>(random() % 12);
    TokenLookup lookup(min_match);
    const size_t half = text.size() / 2;  // as a prompt and a reply arrive
    lookup.Append(std::span(text).first(half));
    lookup.Append(std::span(text).subspan(half));
    const std::span<const int32_t> found = lookup.Find(max_tokens);
    ASSERT_EQ(std::vector<int32_t>(found.begin(), found.end()), FindSlowly(text, min_match, max_tokens)) << i;
  }
}

TEST(LookupTest, ALongRunOfOneTokenIsFoundAtOnce) {
  const std::vector<int32_t> text(100000, 5);
  EXPECT_EQ(Find(text, 3, 16), std::vector<int32_t>(16, 5));
}

}  // namespace
}  // namespace hydrant::draft::lookup_test
