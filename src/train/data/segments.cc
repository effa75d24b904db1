// SPDX-License-Identifier: Apache-2.0
#include "train/data/segments.h"

#include <algorithm>

#include "base/check.h"
#include "train/data/random.h"

namespace hydrant::train {

std::vector<Segment> CutSegments(const TokenData& data, int32_t most, int32_t least) {
  HYDRANT_CHECK(most >= 1 && least >= 0);
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t end : data.ends) {
    for (; begin < end; begin += most) {
      const auto count = static_cast<int32_t>(std::min<int64_t>(most, end - begin));
      const auto first = data.learned.begin() + begin;
      if (count >= least && std::find(first + 1, first + count, 1) != first + count) segments.push_back({begin, count});
    }
    begin = end;
  }
  return segments;
}

std::vector<Segment> ChooseSegments(std::span<const Segment> segments, int64_t tokens, uint64_t seed) {
  if (tokens <= 0) return {segments.begin(), segments.end()};
  Random random(MixBits(seed));
  std::vector<int32_t> order = ShuffledIndices(segments.size(), random);
  size_t count = 0;
  for (int64_t chosen = 0; count < order.size() && chosen < tokens; ++count) {
    chosen += segments[static_cast<size_t>(order[count])].count;
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  std::vector<Segment> result;
  result.reserve(count);
  for (const int32_t index : order) result.push_back(segments[static_cast<size_t>(index)]);
  return result;
}

}  // namespace hydrant::train
