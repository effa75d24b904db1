// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <algorithm>

#include "base/check.h"

namespace hydrant::model {
namespace {

void CopyRows(const Matrix& from, Matrix& to) {
  to.Resize(from.rows(), from.cols());
  for (int64_t r = 0; r < from.rows(); ++r) std::copy_n(from.row(r), from.cols(), to.row(r));
}

}  // namespace

Decoder::Decoder(kernels::Queue* queue, const ModelWeights* weights, int64_t capture_layer)
    : queue_(queue),
      weights_(weights),
      capture_layer_(capture_layer),
      layer_(queue, weights->config),
      inv_freq_(InverseFrequencies(weights->config.rope, weights->config.head_dim)) {
  HYDRANT_CHECK(capture_layer >= -1 && capture_layer <= weights->config.num_layers);
}

void Decoder::Forward(const RowBatch& batch, const kv::BlockPool& pool, ForwardOutput& output) {
  const ModelConfig& config = weights_->config;
  x_.Resize(batch.num_rows(), config.hidden_size);
  kernels::Embed(*queue_, weights_->embedding, batch.tokens(), x_);
  layer_.Rotate(batch.positions(), inv_freq_, rotation_);
  if (capture_layer_ == 0) CopyRows(x_, output.captured);
  for (int64_t l = 0; l < config.num_layers; ++l) {
    layer_.Run(weights_->layers[static_cast<size_t>(l)], rotation_, batch.kv(), pool.layer(l), x_);
    if (capture_layer_ == l + 1) CopyRows(x_, output.captured);
  }
  output.hidden.Resize(batch.num_rows(), config.hidden_size);
  kernels::RmsNorm(*queue_, x_, weights_->final_norm, config.rms_norm_eps, output.hidden);
  Logits(batch, output);
}

void Decoder::Logits(const RowBatch& batch, ForwardOutput& output) {
  const auto wanted = static_cast<int64_t>(batch.logit_rows().size());
  output.logits.Resize(wanted, weights_->config.vocab_size);
  if (wanted == 0) return;
  const kernels::Weight lm_head = weights_->lm_head.view();
  if (wanted == batch.num_rows()) {
    kernels::Matmul(*queue_, output.hidden, lm_head, {}, output.logits);
    return;
  }
  selected_.Resize(wanted, weights_->config.hidden_size);
  for (int64_t i = 0; i < wanted; ++i) {
    const int32_t row = batch.logit_rows()[static_cast<size_t>(i)];
    std::copy_n(output.hidden.row(row), output.hidden.cols(), selected_.row(i));
  }
  kernels::Matmul(*queue_, selected_, lm_head, {}, output.logits);
}

kv::KvShape KvShapeFor(const ModelConfig& config, DType dtype) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .dtype = dtype};
}

}  // namespace hydrant::model
