// SPDX-License-Identifier: Apache-2.0
#include "train/data/batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "train/data/random.h"

namespace hydrant::train {

BatchOrder::BatchOrder(std::vector<Segment> segments, int32_t row_tokens, int32_t rows, uint64_t seed)
    : segments_(std::move(segments)), row_tokens_(row_tokens), rows_(rows), seed_(seed) {
  HYDRANT_CHECK(rows >= 1);
  for (const Segment& segment : segments_) HYDRANT_CHECK(segment.count >= 1 && segment.count <= row_tokens);
}

int64_t BatchOrder::steps(int32_t epoch) {
  Pack(epoch);
  return (static_cast<int64_t>(packed_.size()) + rows_ - 1) / rows_;
}

Batch BatchOrder::at(int32_t epoch, int64_t step) {
  HYDRANT_CHECK(step >= 0 && step < steps(epoch));
  const auto begin = packed_.begin() + step * rows_;
  const auto count = std::min<int64_t>(rows_, packed_.end() - begin);
  return {.rows = {begin, begin + count}};
}

void BatchOrder::Pack(int32_t epoch) {
  HYDRANT_CHECK(epoch >= 0);
  if (epoch == packed_epoch_) return;
  Random random(MixBits(seed_) ^ MixBits(static_cast<uint64_t>(epoch) + 1));
  const std::vector<int32_t> order = ShuffledIndices(segments_.size(), random);
  packed_.clear();
  std::vector<int32_t> window;  // those that wait, in their order
  size_t next = 0;
  while (next < order.size() || !window.empty()) {
    Row row;
    for (size_t i = 0;;) {
      while (window.size() < kWindow && next < order.size()) window.push_back(order[next++]);
      const auto fits = [&](int32_t index) {
        return segments_[static_cast<size_t>(index)].count <= row_tokens_ - row.tokens;
      };
      while (i < window.size() && !fits(window[i])) ++i;
      if (i == window.size()) break;
      row.segments.push_back(window[i]);
      row.tokens += segments_[static_cast<size_t>(window[i])].count;
      window.erase(window.begin() + static_cast<std::ptrdiff_t>(i));
    }
    packed_.push_back(std::move(row));
  }
  packed_epoch_ = epoch;
}

Batch ShareOf(const Batch& batch, int rank, int ranks) {
  HYDRANT_CHECK(rank >= 0 && rank < ranks);
  std::vector<size_t> by_length(batch.rows.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](size_t a, size_t b) { return batch.rows[a].tokens > batch.rows[b].tokens; });
  std::vector<int64_t> tokens(static_cast<size_t>(ranks), 0);
  std::vector<size_t> own;
  for (const size_t row_idx : by_length) {
    const auto least = std::min_element(tokens.begin(), tokens.end());
    *least += batch.rows[row_idx].tokens;
    if (least - tokens.begin() == rank) own.push_back(row_idx);
  }
  std::sort(own.begin(), own.end());
  Batch share;
  for (const size_t row_idx : own) share.rows.push_back(batch.rows[row_idx]);
  return share;
}

}  // namespace hydrant::train
