// SPDX-License-Identifier: Apache-2.0
// A text's forward pass by chunks of rows, as prompts are read.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "model/row_batch.h"

namespace hydrant::eval {

class ChunkedForward {
 public:
  // All must outlive this.
  ChunkedForward(model::Decoder* decoder, kv::BlockPool* pool) : decoder_(decoder), pool_(pool) {}

  // Called, where there is one, after each pass over the rows `first` .. first + count - 1.
  using OnChunk = std::function<void(int32_t first, int32_t count, const model::ForwardOutput& output)>;

  // Token i at position i of `table`, which has room for all of them; rows from `first_wanted` on with logits.
  void Run(std::span<const int32_t> tokens, const kv::BlockTable& table, int32_t chunk, int32_t first_wanted,
           const OnChunk& on_chunk);

 private:
  model::Decoder* decoder_;
  kv::BlockPool* pool_;
  model::RowBatch batch_;
  model::ForwardOutput output_;
};

}  // namespace hydrant::eval
