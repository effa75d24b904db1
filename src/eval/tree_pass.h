// SPDX-License-Identifier: Apache-2.0
// One sequence with a context of random keys and values, and forward passes over it: what benchmarks time.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/chunked_forward.h"
#include "kernels/ops/queue.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "model/weights.h"

namespace hydrant::eval {

class TreePass {
 public:
  // Room for `max_rows` positions after the context. `queue` and `weights` must outlive this.
  TreePass(kernels::Queue* queue, const model::ModelWeights* weights, DType kv_type, int context, int max_rows);

  // Verification of a tree: those nodes of a binary tree, ancestors included. Rows in preorder, all with their logits.
  const model::ForwardOutput& Tree(const std::vector<int32_t>& nodes);
  int32_t RowOf(int32_t node) const { return rows_[static_cast<size_t>(node)]; }  // in the last tree
  // A prompt at position 0, by chunks; the last row's logits.
  void Prefill(int tokens, int chunk);

 private:
  void FillContext();
  void Place(const std::vector<int32_t>& nodes);
  int32_t TokenOf(int index) const { return static_cast<int32_t>((index * 7919 + 1) % weights_->config.vocab_size); }

  kernels::Queue* queue_;
  const model::ModelWeights* weights_;
  int context_;
  model::Decoder decoder_;
  kv::BlockPool pool_;
  kv::BlockTable table_;
  ChunkedForward forward_;
  std::vector<int32_t> nodes_;               // of the last tree
  std::vector<std::vector<int32_t>> paths_;  // to the node of each row
  std::vector<int32_t> rows_;                // [node] its row, and its slot behind the root's
  std::vector<int32_t> slots_;               // of one path
  model::RowBatch batch_;
  model::ForwardOutput output_;
};

// The binary tree's nodes in level order, a parent before its children: from the root down to `node`, and all of
// 0 .. rows - 1.
std::vector<int32_t> PathToNode(int32_t node);
std::vector<int32_t> AllNodes(int rows);

}  // namespace hydrant::eval
