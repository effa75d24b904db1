// SPDX-License-Identifier: Apache-2.0
#include "train/base_states.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/check.h"

namespace hydrant::train {
namespace {

// Blocks for the segments of one pass: each may have a last block that is not full.
int32_t BlocksFor(int32_t longest) {
  return 2 * load::kMaxRows / kernels::kBlockPositions + load::kMaxRows + longest / kernels::kBlockPositions + 1;
}

kv::KvShape ShapeOf(const load::LoadedModel& loaded) {
  kv::KvShape shape = loaded.kv_shape;
  shape.layers.resize(static_cast<size_t>(loaded.base_layers().count));
  shape.reads_next_token = false;
  return shape;
}

}  // namespace

BaseStates::BaseStates(load::LoadedModel& loaded, std::vector<int32_t> wanted, int32_t longest)
    : loaded_(&loaded),
      wanted_(std::move(wanted)),
      longest_(longest),
      decoder_(&loaded.queue, &loaded.weights, wanted_),
      pool_(ShapeOf(loaded), BlocksFor(longest)) {}

void BaseStates::Compute(std::span<const std::span<const int32_t>> segments, std::vector<Matrix>& states) {
  int64_t total = 0;
  for (const auto& segment : segments) total += static_cast<int64_t>(segment.size());
  states.resize(wanted_.size());
  for (Matrix& matrix : states) matrix.Resize(total, loaded_->weights.config.hidden_size);
  tables_.clear();
  tables_.resize(segments.size());
  std::vector<Piece> pieces;
  int32_t rows = 0;
  int64_t row = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const auto length = static_cast<int32_t>(segments[s].size());
    HYDRANT_CHECK(length > 0 && length <= longest_);
    for (int32_t first = 0; first < length;) {
      const int32_t count = std::min(length - first, load::kMaxRows - rows);
      pieces.push_back({.segment = s, .first = first, .count = count, .row = row});
      first += count;
      row += count;
      rows += count;
      if (rows < load::kMaxRows) continue;
      RunPieces(segments, pieces, states);
      pieces.clear();
      rows = 0;
    }
  }
  if (!pieces.empty()) RunPieces(segments, pieces, states);
  tables_.clear();
}

void BaseStates::RunPieces(std::span<const std::span<const int32_t>> segments, std::span<const Piece> pieces,
                           std::vector<Matrix>& states) {
  batch_.Clear();
  for (const Piece& piece : pieces) {
    std::unique_ptr<kv::BlockTable>& table = tables_[piece.segment];
    if (!table) table = std::make_unique<kv::BlockTable>(&pool_);
    const bool reserved = table->Reserve(piece.first + piece.count);
    HYDRANT_CHECK(reserved);
    batch_.AddChain(segments[piece.segment].subspan(static_cast<size_t>(piece.first), static_cast<size_t>(piece.count)),
                    piece.first, table->blocks());
  }
  batch_.Seal();
  decoder_.Forward(batch_, pool_, output_);
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    for (size_t w = 0; w < wanted_.size(); ++w) {
      const Matrix& hidden = output_.HiddenOf(w);
      for (int64_t i = 0; i < piece.count; ++i) {
        std::copy_n(hidden.row(row + i), hidden.cols(), states[w].row(piece.row + i));
      }
    }
    const float* last = output_.hidden.row(row + piece.count - 1);
    if (!std::all_of(last, last + output_.hidden.cols(), [](float x) { return std::isfinite(x); })) {
      throw load::NoFiniteLogits(loaded_->options.model);
    }
    row += piece.count;
    kv::BlockTable& table = *tables_[piece.segment];
    table.Append(piece.count);
    const bool is_done = piece.first + piece.count == static_cast<int32_t>(segments[piece.segment].size());
    if (is_done) tables_[piece.segment].reset();
  }
}

}  // namespace hydrant::train
