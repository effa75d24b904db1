// SPDX-License-Identifier: Apache-2.0
#include "model/layer.h"

#include <cmath>

namespace hydrant::model {

LayerRunner::LayerRunner(kernels::Queue* queue, const ModelConfig& config) : queue_(queue), config_(config) {}

void LayerRunner::Rotate(std::span<const int32_t> positions, std::span<const float> inv_freq, RowRotation& rotation) {
  const auto rows = static_cast<int64_t>(positions.size());
  rotation.cos.Resize(rows, config_.head_dim / 2);
  rotation.sin.Resize(rows, config_.head_dim / 2);
  kernels::RopeTable(*queue_, positions, inv_freq, rotation.cos, rotation.sin);
}

void LayerRunner::Run(const LayerWeights& weights, const RowRotation& rotation, std::span<const kernels::RowKv> rows,
                      const kernels::KvLayer& kv, kernels::Rows x) {
  normed_.Resize(x.rows, x.cols);
  Attend(weights, rotation, rows, kv, x);
  FeedForward(weights, x);
}

void LayerRunner::Attend(const LayerWeights& weights, const RowRotation& rotation, std::span<const kernels::RowKv> rows,
                         const kernels::KvLayer& kv, kernels::Rows x) {
  const int64_t q_width = config_.num_heads * config_.head_dim;
  const int64_t kv_width = config_.num_kv_heads * config_.head_dim;
  q_.Resize(x.rows, q_width);
  k_.Resize(x.rows, kv_width);
  v_.Resize(x.rows, kv_width);
  context_.Resize(x.rows, q_width);
  kernels::RmsNorm(*queue_, x, weights.input_norm, config_.rms_norm_eps, normed_);
  kernels::Matmul(*queue_, normed_, weights.q.view(), weights.q.bias, q_);
  kernels::Matmul(*queue_, normed_, weights.k.view(), weights.k.bias, k_);
  kernels::Matmul(*queue_, normed_, weights.v.view(), weights.v.bias, v_);
  if (!weights.q_norm.empty()) {
    kernels::RmsNormHeads(*queue_, q_, config_.head_dim, weights.q_norm, config_.rms_norm_eps);
    kernels::RmsNormHeads(*queue_, k_, config_.head_dim, weights.k_norm, config_.rms_norm_eps);
  }
  kernels::Rope(*queue_, q_, config_.head_dim, rotation.cos, rotation.sin);
  kernels::Rope(*queue_, k_, config_.head_dim, rotation.cos, rotation.sin);
  kernels::StoreKv(*queue_, k_, v_, rows, kv);
  const kernels::AttentionOptions options{.num_heads = config_.num_heads,
                                          .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                                          .window = config_.sliding_window};
  kernels::Attention(*queue_, q_, rows, kv, options, context_);
  kernels::Matmul(*queue_, context_, weights.o.view(), weights.o.bias, x, kernels::MatmulMode::kAdd);
}

void LayerRunner::FeedForward(const LayerWeights& weights, kernels::Rows x) {
  gate_.Resize(x.rows, config_.intermediate_size);
  up_.Resize(x.rows, config_.intermediate_size);
  kernels::RmsNorm(*queue_, x, weights.post_attention_norm, config_.rms_norm_eps, normed_);
  kernels::Matmul(*queue_, normed_, weights.gate.view(), weights.gate.bias, gate_);
  kernels::Matmul(*queue_, normed_, weights.up.view(), weights.up.bias, up_);
  kernels::SiluMul(*queue_, gate_, up_, gate_);
  kernels::Matmul(*queue_, gate_, weights.down.view(), weights.down.bias, x, kernels::MatmulMode::kAdd);
}

}  // namespace hydrant::model
