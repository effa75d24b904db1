// SPDX-License-Identifier: Apache-2.0
#include "draft/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <vector>

namespace hydrant::draft {
void PrintTo(const Recurrence& found, std::ostream* out) {
  *out << found.length << " tokens, ends " << found.first_end << " .. " << found.last_end;
}
}  // namespace hydrant::draft

namespace hydrant::draft::suffix_automaton_test {
namespace {

// Every place, token by token.
Recurrence FindSlowly(const std::vector<int32_t>& text, const MatchLengths& lengths) {
  const auto last = static_cast<int32_t>(text.size()) - 1;
  Recurrence found;
  for (int32_t end = 0; end < last; ++end) {
    int32_t length = 0;
    while (length <= end && length < lengths.most &&
           text[static_cast<size_t>(end - length)] == text[static_cast<size_t>(last - length)]) {
      ++length;
    }
    if (length < lengths.least || length < found.length) continue;
    if (length > found.length) found = {.length = length, .first_end = end};
    found.last_end = end;
  }
  return found;
}

void ExpectEqualToTheSlowSearch(const std::vector<int32_t>& text, const MatchLengths& lengths) {
  SuffixAutomaton automaton(lengths);
  std::vector<int32_t> part;
  for (const int32_t token : text) {
    automaton.Append(token);
    part.push_back(token);
    ASSERT_EQ(automaton.recurrence(), FindSlowly(part, lengths))
        << testing::PrintToString(part) << ", " << lengths.least << " to " << lengths.most;
  }
}

constexpr MatchLengths kLengths[] = {{1, 1}, {1, 3}, {3, 3}, {2, 5}, {1, 64}, {3, 64}, {64, 64}, {1, 1 << 20}};

// Tokens of a vocabulary are no small numbers, nor are they all positive in a test's text.
std::vector<int32_t> Random(std::mt19937& random, size_t size, uint32_t alphabet) {
  std::vector<int32_t> text(size);
  for (int32_t& token : text) token = static_cast<int32_t>(random() % alphabet * 1000003) - 1;
  return text;
}

TEST(SuffixAutomatonTest, IsTheSlowSearchOverRandomTexts) {
  std::mt19937 random(7);
  for (int32_t i = 0; i < 400; ++i) {
    for (const MatchLengths& lengths : kLengths) {
      ExpectEqualToTheSlowSearch(Random(random, random() % 100, 1 + static_cast<uint32_t>(random() % 6)), lengths);
    }
  }
}

// A period, broken here and there, with a past that is longer than what is compared.
TEST(SuffixAutomatonTest, IsTheSlowSearchOverPeriodicTexts) {
  std::mt19937 random(8);
  for (int32_t i = 0; i < 60; ++i) {
    const std::vector<int32_t> period = Random(random, 1 + random() % 40, 1 + static_cast<uint32_t>(random() % 8));
    std::vector<int32_t> text;
    while (text.size() < 250) text.push_back(random() % 50 == 0 ? 77 : period[text.size() % period.size()]);
    for (const MatchLengths& lengths : kLengths) ExpectEqualToTheSlowSearch(text, lengths);
  }
}

// Texts that give an automaton most states (a b^n), most transitions (a b^n c) or a state with most edges, and random
// ones.
TEST(SuffixAutomatonTest, TakesEightyBytesATokenAtMost) {
  std::mt19937 random(9);
  constexpr size_t kSize = 70000;  // just above a power of two, where the table of edges has grown last
  std::vector<int32_t> many_states(kSize, 2), many_edges(kSize, 2), wide(kSize);
  many_states[0] = many_edges[0] = 1;
  many_edges.back() = 3;
  for (size_t i = 0; i < kSize; ++i) wide[i] = i % 2 == 0 ? 1 : static_cast<int32_t>(i);
  const std::vector<int32_t> new_tokens = Random(random, kSize, 1U << 31);
  for (const std::vector<int32_t>& text : {many_states, many_edges, wide, new_tokens, Random(random, kSize, 2),
                                           Random(random, kSize, 16), Random(random, kSize, 300)}) {
    SuffixAutomaton automaton({.least = 3, .most = 64});
    for (const int32_t token : text) automaton.Append(token);
    EXPECT_LE(automaton.bytes(), 80 * kSize + 200);
    EXPECT_EQ(automaton.recurrence(), FindSlowly(text, {.least = 3, .most = 64}));
  }
}

}  // namespace
}  // namespace hydrant::draft::suffix_automaton_test
