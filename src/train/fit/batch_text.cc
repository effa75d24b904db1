// SPDX-License-Identifier: Apache-2.0
#include "train/fit/batch_text.h"

namespace hydrant::train {

BatchText TextOf(const RunData& run, const Batch& batch) {
  BatchText text;
  for (const Row& row : batch.rows) {
    text.rows.push_back(static_cast<int32_t>(row.segments.size()));
    for (const int32_t index : row.segments) {
      text.indices.push_back(index);
      const Segment& segment = run.order->segments()[static_cast<size_t>(index)];
      const auto begin = static_cast<size_t>(segment.begin), count = static_cast<size_t>(segment.count);
      text.segments.push_back(
          {std::span(run.data.tokens).subspan(begin, count), std::span(run.data.learned).subspan(begin, count)});
      text.texts.push_back(text.segments.back().tokens);
    }
  }
  return text;
}

}  // namespace hydrant::train
