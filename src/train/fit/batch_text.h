// SPDX-License-Identifier: Apache-2.0
// The text of a batch, as spans of the run's data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/fit/batch_tensors.h"
#include "train/run_data.h"

namespace hydrant::train {

struct BatchText {
  std::vector<SegmentTokens> segments;
  std::vector<int32_t> rows;                    // how many segments each row has
  std::vector<int32_t> indices;                 // of the segments, as the order of batches counts them
  std::vector<std::span<const int32_t>> texts;  // their tokens alone
};

// `run` must outlive it.
BatchText TextOf(const RunData& run, const Batch& batch);

}  // namespace hydrant::train
