// SPDX-License-Identifier: Apache-2.0
#include "train/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "train/data/random.h"

namespace hydrant::train::batches_test {
namespace {

using testing::ElementsAre;

std::vector<Segment> SegmentsOf(const std::vector<int32_t>& counts) {
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int32_t count : counts) {
    segments.push_back({begin, count});
    begin += count;
  }
  return segments;
}

std::vector<Segment> RandomSegments(size_t count, uint64_t most, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> counts;
  for (size_t i = 0; i < count; ++i) counts.push_back(static_cast<int32_t>(random.Below(most)) + 1);
  return SegmentsOf(counts);
}

// "0,3 1 | 2": rows, and batches between bars.
std::string WordsOf(BatchOrder& order, int32_t epoch) {
  std::string words;
  for (int64_t step = 0; step < order.steps(epoch); ++step) {
    words += step == 0 ? "" : " |";
    for (const Row& row : order.at(epoch, step).rows) {
      words += words.empty() ? "" : " ";
      for (size_t i = 0; i < row.segments.size(); ++i) words += (i == 0 ? "" : ",") + std::to_string(row.segments[i]);
    }
  }
  return words;
}

TEST(BatchOrderTest, EpochsHaveTheseOrdersOnEveryMachine) {
  BatchOrder order(SegmentsOf({10, 3, 4, 10, 5, 2, 7, 1, 6}), 10, 2, 42);
  EXPECT_EQ(WordsOf(order, 0), "5,1,2,7 0 | 3 8 | 6 4");
  EXPECT_EQ(WordsOf(order, 1), "7,6,5 3 | 4,2 0 | 8,1");
  EXPECT_EQ(WordsOf(order, 0), "5,1,2,7 0 | 3 8 | 6 4");  // again, after another
  BatchOrder other(SegmentsOf({10, 3, 4, 10, 5, 2, 7, 1, 6}), 10, 2, 43);
  EXPECT_EQ(WordsOf(other, 0), "2,8 1,4,5 | 6,7 3 | 0");
}

TEST(BatchOrderTest, AnEpochHasEverySegmentOnceInRowsThatAreNotTooLong) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{63}, size_t{64}, size_t{65}, size_t{1000}}) {
    const std::vector<Segment> segments = RandomSegments(count, 100, count);
    BatchOrder order(segments, 100, 8, 5);
    for (int32_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> seen(count, 0);
      for (int64_t step = 0; step < order.steps(epoch); ++step) {
        const Batch batch = order.at(epoch, step);
        EXPECT_TRUE(batch.rows.size() == 8 || (step + 1 == order.steps(epoch) && !batch.rows.empty()));
        for (const Row& row : batch.rows) {
          int32_t tokens = 0;
          for (const int32_t index : row.segments) {
            ++seen[static_cast<size_t>(index)];
            tokens += segments[static_cast<size_t>(index)].count;
          }
          EXPECT_EQ(row.tokens, tokens);
          EXPECT_LE(tokens, 100);
          EXPECT_GT(tokens, 0);
        }
      }
      EXPECT_THAT(seen, testing::Each(1));
    }
  }
}

// Lengths equally likely up to the row's: without a window a third more rows than full ones are needed.
TEST(BatchOrderTest, RowsAreNearlyFull) {
  const std::vector<Segment> segments = RandomSegments(5000, 100, 1);
  BatchOrder order(segments, 100, 1, 5);
  int64_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.count;
  EXPECT_LT(order.steps(0) * 100, tokens * 107 / 100);
}

// A segment waits until its row is begun, and a row is begun by the first that waits.
TEST(BatchOrderTest, NoSegmentIsMovedFarForward) {
  const std::vector<Segment> segments = RandomSegments(2000, 100, 2);
  BatchOrder order(segments, 100, 1, 5);
  Random random(MixBits(5) ^ MixBits(1));
  const std::vector<int32_t> shuffled = ShuffledIndices(segments.size(), random);
  std::vector<size_t> place(segments.size());
  for (size_t i = 0; i < shuffled.size(); ++i) place[static_cast<size_t>(shuffled[i])] = i;
  size_t done = 0;
  for (int64_t step = 0; step < order.steps(0); ++step) {
    const Batch batch = order.at(0, step);
    for (const int32_t index : batch.rows.front().segments)
      EXPECT_LT(place[static_cast<size_t>(index)], done++ + BatchOrder::kWindow);
  }
}

Batch BatchOf(const std::vector<int32_t>& tokens) {
  Batch batch;
  for (size_t i = 0; i < tokens.size(); ++i) batch.rows.push_back({{static_cast<int32_t>(i)}, tokens[i]});
  return batch;
}

TEST(ShareOfTest, RanksHaveEachRowOnceAndNearlyEqualTokens) {
  Random random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<int32_t> tokens;
    const uint64_t rows = random.Below(40);
    for (uint64_t i = 0; i < rows; ++i) tokens.push_back(static_cast<int32_t>(random.Below(512)) + 1);
    const Batch batch = BatchOf(tokens);
    for (const int ranks : {1, 2, 3, 8}) {
      std::vector<int> seen(tokens.size(), 0);
      std::vector<int64_t> sums;
      for (int rank = 0; rank < ranks; ++rank) {
        int32_t before = -1;
        sums.push_back(0);
        for (const Row& row : ShareOf(batch, rank, ranks).rows) {
          EXPECT_GT(row.segments.front(), before);  // in the order of the batch
          before = row.segments.front();
          ++seen[static_cast<size_t>(before)];
          sums.back() += row.tokens;
        }
      }
      EXPECT_THAT(seen, testing::Each(1));
      const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
      EXPECT_LE(*most - *least, tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end()));
    }
  }
}

TEST(ShareOfTest, LongRowsAreGivenOutFirst) {
  const Batch batch = BatchOf({1, 2, 3, 9, 3});
  EXPECT_THAT(ShareOf(batch, 0, 2).rows, ElementsAre(Row{{3}, 9}));
  EXPECT_THAT(ShareOf(batch, 1, 2).rows, ElementsAre(Row{{0}, 1}, Row{{1}, 2}, Row{{2}, 3}, Row{{4}, 3}));
  EXPECT_EQ(ShareOf(batch, 0, 1), batch);
  EXPECT_THAT(ShareOf(BatchOf({5}), 1, 2).rows, ElementsAre());
}

}  // namespace
}  // namespace hydrant::train::batches_test
