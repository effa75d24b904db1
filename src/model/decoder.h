// SPDX-License-Identifier: Apache-2.0
// The base model's forward pass: the only one. It knows rows; it knows nothing of trees, drafts or requests.
#pragma once

#include <vector>

#include "kernels/ops.h"
#include "kv/kv_cache.h"
#include "model/layer.h"
#include "model/row_batch.h"
#include "model/weights.h"

namespace hydrant::model {

struct ForwardOutput {
  Matrix hidden;    // [R, D], after the final norm
  Matrix captured;  // [R, D], output of `capture_layer` without a norm; empty unless asked for
  Matrix logits;    // [logit_rows, V], in the order of RowBatch::logit_rows
};

class Decoder {
 public:
  // `queue` and `weights` must outlive this. `capture_layer`: -1 = none, 0 = the embeddings, l = output of the l-th
  // layer.
  Decoder(kernels::Queue* queue, const ModelWeights* weights, int64_t capture_layer = -1);

  // `pool` holds the blocks that the batch's rows name; its shape is KvShapeFor(config).
  void Forward(const RowBatch& batch, const kv::BlockPool& pool, ForwardOutput& output);

 private:
  void Reserve(const RowBatch& batch, ForwardOutput& output);
  void Run(kernels::Queue& queue, const RowBatch& batch, const kv::BlockPool& pool, ForwardOutput& output);
  void Logits(kernels::Queue& queue, const RowBatch& batch, ForwardOutput& output);

  kernels::Queue* queue_;
  const ModelWeights* weights_;
  int64_t capture_layer_;
  LayerRunner layer_;
  std::vector<float> inv_freq_;  // [Dh / 2]
  InputByKind head_input_;       // [logit_rows, D]
  Matrix x_;                     // [R, D]
  Matrix selected_;              // [logit_rows, D]
};

kv::KvShape KvShapeFor(const ModelConfig& config, DType dtype);

}  // namespace hydrant::model
