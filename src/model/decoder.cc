// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hydrant::model {
namespace {

// to[i] = from[rows[i]], or from[i] without rows.
void CopyRows(kernels::Queue& queue, const Matrix& from, std::span<const int32_t> rows, Matrix& to) {
  kernels::ForItems(queue, to.rows(), to.cols(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(from.row(rows.empty() ? i : rows[static_cast<size_t>(i)]), from.cols(), to.row(i));
    }
  });
}

}  // namespace

Decoder::Decoder(kernels::Queue* queue, const ModelWeights* weights, std::vector<int32_t> wanted_layers)
    : queue_(queue),
      weights_(weights),
      wanted_layers_(std::move(wanted_layers)),
      layer_(queue, weights->config, weights->layers),
      inv_freq_(InverseFrequencies(weights->config.rope, weights->config.head_dim)) {
  for (const int32_t l : wanted_layers_) HYDRANT_CHECK(l >= kAfterFinalNorm && l <= weights->config.num_layers);
  head_input_.Uses(weights->lm_head);
}

void Decoder::Forward(const RowBatch& batch, const kv::BlockPool& pool, ForwardOutput& output, int64_t first_layer) {
  Reserve(batch, output);
  kernels::Region(*queue_, [&](kernels::Queue& queue) { Run(queue, batch, pool, first_layer, output); });
}

void Decoder::Reserve(const RowBatch& batch, ForwardOutput& output) {
  const ModelConfig& config = weights_->config;
  const int64_t rows = batch.num_rows();
  const auto wanted = static_cast<int64_t>(batch.logit_rows().size());
  layer_.Reserve(batch.kv(), rows);
  x_.Resize(rows, config.hidden_size);
  output.hidden.Resize(rows, config.hidden_size);
  output.captured.resize(wanted_layers_.size());
  for (size_t i = 0; i < wanted_layers_.size(); ++i) {
    if (wanted_layers_[i] != kAfterFinalNorm) output.captured[i].Resize(rows, config.hidden_size);
  }
  if (wanted < rows) selected_.Resize(wanted, config.hidden_size);
  head_input_.Reserve(*queue_->table, wanted, config.hidden_size);
  output.logits.Resize(wanted, config.vocab_size);
}

void Decoder::Run(kernels::Queue& queue, const RowBatch& batch, const kv::BlockPool& pool, int64_t first_layer,
                  ForwardOutput& output) {
  kernels::Embed(queue, weights_->embedding, batch.tokens(), x_);
  layer_.Rotate(queue, batch.positions(), inv_freq_);
  Capture(queue, 0, output);
  for (int64_t l = 0; l < weights_->config.num_layers; ++l) {
    layer_.Run(queue, weights_->layers[static_cast<size_t>(l)], pool.layer(first_layer + l), x_);
    Capture(queue, static_cast<int32_t>(l) + 1, output);
  }
  Logits(queue, batch, output);
}

void Decoder::Capture(kernels::Queue& queue, int32_t layer, ForwardOutput& output) const {
  for (size_t i = 0; i < wanted_layers_.size(); ++i) {
    if (wanted_layers_[i] == layer) CopyRows(queue, x_, {}, output.captured[i]);
  }
}

void Decoder::Logits(kernels::Queue& queue, const RowBatch& batch, ForwardOutput& output) {
  const kernels::Weight lm_head = weights_->lm_head.view();
  const float eps = weights_->config.rms_norm_eps;
  const auto wanted = static_cast<int64_t>(batch.logit_rows().size());
  kernels::MatmulInput& input = head_input_.For(lm_head);
  if (wanted == batch.num_rows()) {
    input.LoadNormed(queue, x_, weights_->final_norm, eps, output.hidden);
  } else {
    kernels::RmsNorm(queue, x_, weights_->final_norm, eps, output.hidden);
    if (wanted == 0) return;
    CopyRows(queue, output.hidden, batch.logit_rows(), selected_);
    input.Load(queue, selected_);
  }
  const kernels::MatmulJob job{&lm_head, weights_->lm_head.bias, output.logits};
  kernels::Matmul(queue, input, std::span(&job, 1));
}

kv::KvShape KvShapeFor(const ModelConfig& config, DType dtype) {
  const kv::LayerShape layer{.num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  return {.layers = std::vector<kv::LayerShape>(static_cast<size_t>(config.num_layers), layer), .dtype = dtype};
}

}  // namespace hydrant::model
