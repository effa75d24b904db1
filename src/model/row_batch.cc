// SPDX-License-Identifier: Apache-2.0
#include "model/row_batch.h"

namespace hydrant::model {

void RowBatch::Clear() {
  tokens_.clear();
  positions_.clear();
  kv_.clear();
  logit_rows_.clear();
  paths_.clear();
  path_offsets_.clear();
}

void RowBatch::AddChain(std::span<const int32_t> tokens, int32_t first, const int32_t* blocks) {
  int32_t position = first;
  for (const int32_t token : tokens) {
    tokens_.push_back(token);
    positions_.push_back(position);
    kernels::RowKv row;
    row.blocks = blocks;
    row.position = position;
    row.identity_length = position + 1;
    row.slot = position;
    kv_.push_back(row);
    path_offsets_.push_back(-1);
    ++position;
  }
}

void RowBatch::AddTreeRow(int32_t token, int32_t root, std::span<const int32_t> path, const int32_t* blocks) {
  tokens_.push_back(token);
  kernels::RowKv row;
  row.blocks = blocks;
  row.position = root + static_cast<int32_t>(path.size()) - 1;
  row.identity_length = root;
  row.slot = root + path.back();
  positions_.push_back(row.position);
  kv_.push_back(row);
  path_offsets_.push_back(static_cast<int64_t>(paths_.size()));
  for (const int32_t place : path) paths_.push_back(root + place);
}

void RowBatch::Seal() {
  for (size_t r = 0; r < kv_.size(); ++r) {
    kv_[r].path = path_offsets_[r] < 0 ? nullptr : paths_.data() + path_offsets_[r];
  }
}

}  // namespace hydrant::model
