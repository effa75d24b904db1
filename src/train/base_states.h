// SPDX-License-Identifier: Apache-2.0
// The frozen base's hidden states of segments, from the same forward pass that decoding uses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "load/loaded_model.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "tensor/tensor.h"

namespace hydrant::train {

class BaseStates {
 public:
  // `loaded` must outlive it. `wanted`: as Drafter::WantedLayers; model::kAfterFinalNorm is always computed.
  // `longest`: tokens of a segment at most.
  BaseStates(load::LoadedModel& loaded, std::vector<int32_t> wanted, int32_t longest);

  // Each segment is a text of its own, from position 0. Sets states[w] to [all tokens, D], in order. Throws FileError
  // where the states are not finite.
  void Compute(std::span<const std::span<const int32_t>> segments, std::vector<Matrix>& states);

 private:
  // Some tokens of one segment.
  struct Piece {
    size_t segment = 0;
    int32_t first = 0, count = 0;
    int64_t row = 0;  // of the states
  };

  void RunPieces(std::span<const std::span<const int32_t>> segments, std::span<const Piece> pieces,
                 std::vector<Matrix>& states);

  load::LoadedModel* loaded_;
  std::vector<int32_t> wanted_;
  int32_t longest_;
  model::Decoder decoder_;
  kv::BlockPool pool_;
  std::vector<std::unique_ptr<kv::BlockTable>> tables_;  // of the segments that are being read
  model::RowBatch batch_;
  model::ForwardOutput output_;
};

}  // namespace hydrant::train
