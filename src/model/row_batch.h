// SPDX-License-Identifier: Apache-2.0
// The rows of one forward pass, flat over all sequences. Prompt chunks, single tokens and trees are the same thing
// here: each row says which token it is, where it stands, and where the keys and values of its own past are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops/ops.h"

namespace hydrant::model {

class RowBatch {
 public:
  void Clear();

  // Rows of a prompt chunk or a single token: positions `first` .. first + tokens.size() - 1, in slots of the same
  // number. `blocks` must stay valid until the forward pass is done.
  void AddChain(std::span<const int32_t> tokens, int32_t first, const int32_t* blocks);
  // A row of a tree whose root stands at position and slot `root`: a node at depth path.size() - 1. `path`: where keys
  // and values of the nodes from the root (0) to it are, or go, in slots behind `root`.
  void AddTreeRow(int32_t token, int32_t root, std::span<const int32_t> path, const int32_t* blocks);
  // Asks for the logits of the rows added last.
  void WantLogits(int32_t count = 1) {
    for (int32_t i = count; i > 0; --i) logit_rows_.push_back(num_rows() - i);
  }
  // Resolves the paths; call once, after the last row.
  void Seal();

  int32_t num_rows() const { return static_cast<int32_t>(tokens_.size()); }  // R
  std::span<const int32_t> tokens() const { return tokens_; }                // [R]
  std::span<const int32_t> positions() const { return positions_; }          // [R]
  std::span<const kernels::RowKv> kv() const { return kv_; }                 // [R]
  std::span<const int32_t> logit_rows() const { return logit_rows_; }

 private:
  std::vector<int32_t> tokens_, positions_;
  std::vector<kernels::RowKv> kv_;
  std::vector<int32_t> logit_rows_;
  std::vector<int32_t> paths_;         // slots, all rows behind one another
  std::vector<int64_t> path_offsets_;  // [R] into paths_, -1 for rows without
};

}  // namespace hydrant::model
