// SPDX-License-Identifier: Apache-2.0
#include "train/data/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace hydrant::train {
void PrintTo(const Segment& segment, std::ostream* out) { *out << segment.begin << "+" << segment.count; }
}  // namespace hydrant::train

namespace hydrant::train::segments_test {
namespace {

using testing::ElementsAre;

// '1' and '0' are tokens that are learned or not; '|' ends a document.
TokenData DataOf(std::string_view learned) {
  TokenData data;
  for (const char sign : learned) {
    if (sign == '|') {
      data.ends.push_back(static_cast<int64_t>(data.tokens.size()));
    } else {
      data.tokens.push_back(static_cast<int32_t>(data.tokens.size()));
      data.learned.push_back(sign == '1' ? 1 : 0);
    }
  }
  return data;
}

int64_t TokensOf(const std::vector<Segment>& segments) {
  int64_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.count;
  return tokens;
}

TEST(SegmentsTest, DocumentsAreCutIntoPiecesAndARest) {
  const TokenData data = DataOf("0111111111|011|01111|");
  EXPECT_THAT(CutSegments(data, 4, 2),
              ElementsAre(Segment{0, 4}, Segment{4, 4}, Segment{8, 2}, Segment{10, 3}, Segment{13, 4}));
  EXPECT_THAT(CutSegments(data, 4, 3), ElementsAre(Segment{0, 4}, Segment{4, 4}, Segment{10, 3}, Segment{13, 4}));
  EXPECT_THAT(CutSegments(data, 100, 4), ElementsAre(Segment{0, 10}, Segment{13, 5}));
  EXPECT_THAT(CutSegments(data, 100, 100), ElementsAre());
  EXPECT_THAT(CutSegments({}, 4, 1), ElementsAre());
}

// Before a piece's first token nothing is seen, so that it is no label.
TEST(SegmentsTest, PiecesWithoutALabelAreLeftOut) {
  EXPECT_THAT(CutSegments(DataOf("0000000110000|0010|"), 4, 1), ElementsAre(Segment{4, 4}, Segment{13, 4}));
  EXPECT_THAT(CutSegments(DataOf("00001000|"), 4, 1), ElementsAre());
  EXPECT_THAT(CutSegments(DataOf("01|1|"), 1, 1), ElementsAre());
}

TEST(SegmentsTest, ASubsetIsLargeEnoughInOrderAndWithoutRepetition) {
  std::vector<Segment> segments;
  for (int32_t i = 0; i < 50; ++i) segments.push_back({i * 10, i % 10 + 1});
  const int64_t all = TokensOf(segments);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const int64_t tokens : {int64_t{1}, int64_t{40}, all - 1, all}) {
      const std::vector<Segment> chosen = ChooseSegments(segments, tokens, seed);
      EXPECT_GE(TokensOf(chosen), tokens);
      EXPECT_LT(TokensOf(chosen), tokens + 10);  // no segment more than are needed
      std::set<int64_t> begins;
      for (const Segment& segment : chosen) {
        EXPECT_NE(std::find(segments.begin(), segments.end(), segment), segments.end());
        EXPECT_TRUE(begins.empty() || segment.begin > *begins.rbegin());
        begins.insert(segment.begin);
      }
    }
  }
  EXPECT_EQ(ChooseSegments(segments, 0, 1), segments);
  EXPECT_EQ(ChooseSegments(segments, all + 1, 1), segments);
}

TEST(SegmentsTest, TheSeedSaysWhichSubset) {
  std::vector<Segment> segments;
  for (int32_t i = 0; i < 9; ++i) segments.push_back({i, 1});
  EXPECT_THAT(ChooseSegments(segments, 3, 1), ElementsAre(Segment{1, 1}, Segment{3, 1}, Segment{4, 1}));
  EXPECT_THAT(ChooseSegments(segments, 3, 2), ElementsAre(Segment{1, 1}, Segment{4, 1}, Segment{8, 1}));
}

}  // namespace
}  // namespace hydrant::train::segments_test
