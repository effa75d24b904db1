// SPDX-License-Identifier: Apache-2.0
// In which order the segments are learned: the same for the same seed, on every machine and with any number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "train/data/segments.h"

namespace hydrant::train {

// Segments that a model is shown one behind another in one row, blind to each other.
struct Row {
  std::vector<int32_t> segments;  // indices
  int32_t tokens = 0;             // of all of them

  bool operator==(const Row&) const = default;
};

struct Batch {
  std::vector<Row> rows;

  bool operator==(const Batch&) const = default;
};

// Every epoch has each segment once, shuffled anew. Short segments share rows: a row takes the first of the order that
// waits, then whatever fits of the next kWindow - 1, in their order. Keeps the order of one epoch; for one thread.
class BatchOrder {
 public:
  static constexpr size_t kWindow = 64;

  // Each segment has at most row_tokens tokens, and a batch `rows` rows; the last of an epoch may have fewer.
  BatchOrder(std::vector<Segment> segments, int32_t row_tokens, int32_t rows, uint64_t seed);

  int64_t steps(int32_t epoch);           // batches
  Batch at(int32_t epoch, int64_t step);  // 0 <= step < steps(epoch)
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  void Pack(int32_t epoch);

  std::vector<Segment> segments_;
  int32_t row_tokens_;
  int32_t rows_;
  uint64_t seed_;
  int32_t packed_epoch_ = -1;
  std::vector<Row> packed_;
};

// The rows of `batch` for one of several machines that share it. Together they have each row once. Long rows are given
// out first, each to the rank with the fewest tokens so far, so that no two ranks differ by more than the tokens of a
// row; a rank may have no row. Rows keep their order. 0 <= rank < ranks.
Batch ShareOf(const Batch& batch, int rank, int ranks);

}  // namespace hydrant::train
