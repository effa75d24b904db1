// SPDX-License-Identifier: Apache-2.0
// The pieces of documents that a model is shown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/data/token_data.h"

namespace hydrant::train {

// Tokens [begin, begin + count) of the data, inside one document.
struct Segment {
  int64_t begin = 0;
  int32_t count = 0;

  bool operator==(const Segment&) const = default;
};

// Each document in pieces of `most` tokens, the rest of it as a shorter piece. Left out are pieces of fewer than
// `least` tokens, and those without a learned token behind their first, before which nothing is seen. In the order of
// the data. 1 <= most, 0 <= least.
std::vector<Segment> CutSegments(const TokenData& data, int32_t most, int32_t least);

// Segments drawn at random until they have `tokens` tokens or more, in the order of the data; all of them where these
// have fewer, and for 0. The last is not cut: what is left of it might have nothing to learn.
std::vector<Segment> ChooseSegments(std::span<const Segment> segments, int64_t tokens, uint64_t seed);

}  // namespace hydrant::train
