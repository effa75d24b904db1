// SPDX-License-Identifier: Apache-2.0
// The base model's forward pass: the only one. It knows rows; it knows nothing of trees, drafts or requests.
#pragma once

#include <vector>

#include "kernels/ops/ops.h"
#include "kv/kv_cache.h"
#include "model/layer.h"
#include "model/row_batch.h"
#include "model/weights.h"

namespace hydrant::model {

// Numbers of the hidden states that someone may want: 0 is the embeddings, l the output of layer l without a norm, and
// kAfterFinalNorm what the lm head reads.
inline constexpr int32_t kAfterFinalNorm = -1;

struct ForwardOutput {
  Matrix hidden;                 // [R, D], after the final norm
  std::vector<Matrix> captured;  // [wanted layers] of [R, D]; an empty matrix for kAfterFinalNorm
  Matrix logits;                 // [logit_rows, V], in the order of RowBatch::logit_rows

  // Hidden states of the i-th wanted layer, [R, D].
  const Matrix& HiddenOf(size_t wanted) const { return captured[wanted].rows() > 0 ? captured[wanted] : hidden; }
};

class Decoder {
 public:
  // `queue` and `weights` must outlive this. `wanted_layers`: see kAfterFinalNorm.
  Decoder(kernels::Queue* queue, const ModelWeights* weights, std::vector<int32_t> wanted_layers = {});

  // `pool` holds the blocks that the batch's rows name; its layers from `first_layer` on are those of
  // KvShapeFor(config).
  void Forward(const RowBatch& batch, const kv::BlockPool& pool, ForwardOutput& output, int64_t first_layer = 0);

 private:
  void Reserve(const RowBatch& batch, ForwardOutput& output);
  void Run(kernels::Queue& queue, const RowBatch& batch, const kv::BlockPool& pool, int64_t first_layer,
           ForwardOutput& output);
  void Capture(kernels::Queue& queue, int32_t layer, ForwardOutput& output) const;
  void Logits(kernels::Queue& queue, const RowBatch& batch, ForwardOutput& output);

  kernels::Queue* queue_;
  const ModelWeights* weights_;
  std::vector<int32_t> wanted_layers_;
  LayerRunner layer_;
  std::vector<float> inv_freq_;  // [Dh / 2]
  InputByKind head_input_;       // [logit_rows, D]
  Matrix x_;                     // [R, D]
  Matrix selected_;              // [logit_rows, D]
};

kv::KvShape KvShapeFor(const ModelConfig& config, DType dtype);

}  // namespace hydrant::model
