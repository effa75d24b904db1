// SPDX-License-Identifier: Apache-2.0
#include "eval/chunked_forward.h"

#include <algorithm>

namespace hydrant::eval {

void ChunkedForward::Run(std::span<const int32_t> tokens, const kv::BlockTable& table, int32_t chunk,
                         int32_t first_wanted, const OnChunk& on_chunk) {
  const auto length = static_cast<int32_t>(tokens.size());
  for (int32_t first = 0; first < length; first += chunk) {
    const int32_t count = std::min(chunk, length - first);
    batch_.Clear();
    for (int32_t i = first; i < first + count; ++i) {
      batch_.AddChain(tokens.subspan(static_cast<size_t>(i), 1), i, table.blocks());
      if (i >= first_wanted) batch_.WantLogits();
    }
    batch_.Seal();
    decoder_->Forward(batch_, *pool_, output_);
    if (on_chunk) on_chunk(first, count, output_);
  }
}

}  // namespace hydrant::eval
