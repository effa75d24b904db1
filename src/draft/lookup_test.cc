// SPDX-License-Identifier: Apache-2.0
#include "draft/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace hydrant::draft::lookup_test {
namespace {

using Tokens = std::vector<int32_t>;

LookupOptions Last(int32_t min_match) { return {.min_match = min_match}; }
LookupOptions First(int32_t min_match = 0, int32_t max_match = 0) {
  return {.min_match = min_match, .rule = LookupRule::kFirst, .max_match = max_match};
}

Tokens Find(const LookupOptions& options, const Tokens& text, int32_t max_tokens) {
  TokenLookup lookup(options, {99, 98});
  lookup.Append(text);
  const std::span<const int32_t> found = lookup.Find(max_tokens);
  return {found.begin(), found.end()};
}

// Every place, from the end, token by token.
Tokens LastSlowly(const Tokens& text, int32_t min_match, int32_t max_match, int32_t max_tokens) {
  const auto size = static_cast<int32_t>(text.size());
  int32_t best = -1, longest = min_match - 1;
  for (int32_t place = size - 2; place >= 0; --place) {
    int32_t match = 0;
    while (match <= place && match < max_match &&
           text[static_cast<size_t>(place - match)] == text[static_cast<size_t>(size - 1 - match)]) {
      ++match;
    }
    if (match <= longest) continue;
    longest = match;
    best = place;
  }
  Tokens all = text, found;
  for (int32_t i = 0; best >= 0 && i < std::min(max_tokens, longest); ++i) {
    all.push_back(all[static_cast<size_t>(best + 1 + i)]);
    found.push_back(all.back());
  }
  return found;
}

// The longest run first, and every place from the beginning, as transformers does.
Tokens FirstSlowly(const Tokens& text, int32_t min_match, int32_t max_match, int32_t max_tokens) {
  const auto size = static_cast<int32_t>(text.size());
  for (int32_t run = std::min(max_match, size - 1); run >= min_match; --run) {
    for (int32_t begin = 0; begin + run < size; ++begin) {
      if (!std::equal(text.end() - run, text.end(), text.begin() + begin)) continue;
      Tokens found(text.begin() + begin + run, text.begin() + std::min(size, begin + run + max_tokens));
      found.erase(std::ranges::find_if(found, [](int32_t token) { return token == 99 || token == 98; }), found.end());
      return found;
    }
  }
  return {};
}

TEST(LookupTest, FindsWhatFollowedTheLongestMatch) {
  //                                the one that agrees in 3 tokens .. | in 2, but later
  EXPECT_EQ(Find(Last(2), {1, 2, 3, 7, 8, 9, 4, 2, 3, 6, 5, 1, 2, 3}, 8), (Tokens{7, 8, 9}));
}

TEST(LookupTest, OfEqualMatchesTheLatestCounts) { EXPECT_EQ(Find(Last(2), {2, 3, 7, 2, 3, 8, 2, 3}, 1), (Tokens{8})); }

// Of the runs of three, 100 stand behind the one that agrees in four.
TEST(LookupTest, TheLongestMatchMayBeOld) {
  Tokens text = {4, 1, 2, 3, 8};
  for (int32_t i = 0; i < 100; ++i) text.insert(text.end(), {9, 1, 2, 3, 100 + i});
  text.insert(text.end(), {4, 1, 2, 3});
  EXPECT_EQ(Find(Last(3), text, 1), (Tokens{8}));
}

TEST(LookupTest, NewTokensFindNothing) {
  EXPECT_TRUE(Find(Last(2), {}, 8).empty());
  EXPECT_TRUE(Find(Last(3), {1, 2, 3}, 8).empty());
  EXPECT_TRUE(Find(Last(2), {1, 2, 3, 4, 9, 3}, 8).empty());
  EXPECT_TRUE(Find(First(), {1, 2, 3}, 8).empty());
  for (const int32_t max_tokens : {0, -100}) {
    EXPECT_TRUE(Find(Last(2), {1, 2, 1, 2, 1, 2}, max_tokens).empty());
    EXPECT_TRUE(Find(First(), {1, 2, 1, 2, 1, 2}, max_tokens).empty());
  }
}

TEST(LookupTest, AShortPeriodGoesOnIntoWhatIsDrafted) {
  EXPECT_EQ(Find(Last(2), {5, 1, 2, 1, 2, 1, 2}, 4), (Tokens{1, 2, 1, 2}));
}

TEST(LookupTest, OfEqualMatchesTheFirstCountsByTheOtherRule) {
  EXPECT_EQ(Find(First(), {2, 3, 7, 2, 3, 8, 2, 3}, 1), (Tokens{7}));
  // Four agree at the later place, but three are compared.
  EXPECT_EQ(Find(First(), {1, 2, 3, 7, 4, 1, 2, 3, 8, 4, 1, 2, 3}, 1), (Tokens{7}));
  EXPECT_EQ(Find(First(0, 4), {1, 2, 3, 7, 4, 1, 2, 3, 8, 4, 1, 2, 3}, 1), (Tokens{8}));
}

TEST(LookupTest, TheFirstRuleDraftsUpToTheEndOfTheText) {
  EXPECT_EQ(Find(First(), {5, 6, 7, 8, 5}, 3), (Tokens{6, 7, 8}));
  EXPECT_EQ(Find(First(), {5, 6, 7, 8, 5}, 10), (Tokens{6, 7, 8, 5}));
  EXPECT_EQ(Find(First(), {5, 5}, 10), (Tokens{5}));
  EXPECT_TRUE(Find(First(2), {5, 6, 7, 8, 5}, 3).empty());
}

// A shorter run is not asked then, as transformers asks none.
TEST(LookupTest, TheFirstRuleDraftsNoTokenThatEndsAReply) {
  EXPECT_EQ(Find(First(), {5, 6, 99, 8, 5}, 9), (Tokens{6}));
  EXPECT_EQ(Find(First(), {5, 6, 8, 98, 5}, 9), (Tokens{6, 8}));
  EXPECT_TRUE(Find(First(), {5, 99, 6, 7, 5}, 9).empty());
}

TEST(LookupTest, MatchLengthsAreTheRulesOwnWhereNoneAreGiven) {
  EXPECT_EQ(LeastMatch({}), 3);
  EXPECT_EQ(MostMatch({}), 64);
  EXPECT_EQ(LeastMatch({.max_match = 2}), 2);
  EXPECT_EQ(LeastMatch(First()), 1);
  EXPECT_EQ(MostMatch(First()), 3);
  EXPECT_EQ(MostMatch(First(5)), 5);
}

TEST(LookupTest, IsTheSlowSearchOverRandomTexts) {
  std::mt19937 random(7);
  for (int32_t i = 0; i < 6000; ++i) {
    const int32_t alphabet = 1 + i % 5, least = 1 + i % 4, most = i % 3 == 0 ? 64 : least + i % 7;
    Tokens text(random() % 150);
    for (int32_t& token : text) token = 95 + static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet));
    const auto max_tokens = static_cast<int32_t>(random() % 12);
    for (const LookupRule rule : {LookupRule::kLast, LookupRule::kFirst}) {
      TokenLookup lookup({.min_match = least, .rule = rule, .max_match = most}, {98, 99});
      const size_t half = text.size() / 2;  // as a prompt and a reply arrive
      lookup.Append(std::span(text).first(half));
      lookup.Append(std::span(text).subspan(half));
      const std::span<const int32_t> found = lookup.Find(max_tokens);
      const auto slowly = rule == LookupRule::kLast ? LastSlowly : FirstSlowly;
      ASSERT_EQ(Tokens(found.begin(), found.end()), slowly(text, least, most, max_tokens)) << i << " " << NameOf(rule);
    }
  }
}

TEST(LookupTest, ALongRunOfOneTokenIsFoundAtOnce) {
  const Tokens text(100000, 5);
  EXPECT_EQ(Find(Last(3), text, 16), Tokens(16, 5));
  EXPECT_EQ(Find(First(), text, 16), Tokens(16, 5));
}

}  // namespace
}  // namespace hydrant::draft::lookup_test
