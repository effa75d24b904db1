// SPDX-License-Identifier: Apache-2.0
#include "train/fit/networks/llama_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/layer.h"

namespace hydrant::train {
namespace {

constexpr double kInitDeviation = 0.02;

// Rotates pairs (i, i + Dh / 2), as Hugging Face lays them out. x [N, heads, Dh]; cos, sin [N, 1, Dh / 2].
at::Tensor Rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(2) / 2;
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 2);
}

}  // namespace

LayerNames UsualLayerNames(const std::string& prefix) {
  return {.input_norm = prefix + "input_layernorm",
          .post_norm = prefix + "post_attention_layernorm",
          .q = prefix + "self_attn.q_proj",
          .k = prefix + "self_attn.k_proj",
          .v = prefix + "self_attn.v_proj",
          .o = prefix + "self_attn.o_proj",
          .gate = prefix + "mlp.gate_proj",
          .up = prefix + "mlp.up_proj",
          .down = prefix + "mlp.down_proj"};
}

LlamaLayer::LlamaLayer(const model::ModelConfig& config, const LayerNames& names, Parameters& parameters,
                       at::Generator& random)
    : config_(config) {
  at::NoGradGuard no_grad;
  const auto matrix = [&](const std::string& name) {
    Layer layer{.weight = parameters.Get(name + ".weight"), .bias = {}};
    layer.weight.normal_(0, kInitDeviation, random);
    if (parameters.Has(name + ".bias")) layer.bias = parameters.Get(name + ".bias");
    return layer;
  };
  const auto norm = [&](const std::string& name) {
    if (name.empty()) return at::Tensor();
    at::Tensor tensor = parameters.Get(name + ".weight");
    tensor.fill_(1);
    return tensor;
  };
  input_norm_ = norm(names.input_norm);
  post_norm_ = norm(names.post_norm);
  q_norm_ = norm(names.q_norm);
  k_norm_ = norm(names.k_norm);
  q_ = matrix(names.q);
  k_ = matrix(names.k);
  v_ = matrix(names.v);
  o_ = matrix(names.o);
  gate_ = matrix(names.gate);
  up_ = matrix(names.up);
  down_ = matrix(names.down);
  const std::vector<float> inv_freq = model::InverseFrequencies(config_.rope, config_.head_dim);
  inv_freq_ = at::empty({static_cast<int64_t>(inv_freq.size())});
  std::copy(inv_freq.begin(), inv_freq.end(), inv_freq_.data_ptr<float>());
}

at::Tensor LlamaLayer::Run(const at::Tensor& x, const BatchTensors& batch, Precision precision) const {
  Past past;
  const at::Tensor attended = input_norm_.defined() ? RmsNorm(x, input_norm_, config_.rms_norm_eps) : x;
  return Run(x, attended, batch, 0, past, precision);
}

at::Tensor LlamaLayer::Run(const at::Tensor& residual, const at::Tensor& attended, const BatchTensors& batch,
                           int64_t ahead, Past& past, Precision precision) const {
  const int64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads, dim = config_.head_dim;
  const RowLayout& rows = batch.rows;
  const at::Tensor angle = (batch.position + ahead).to(at::kFloat).unsqueeze(1) * inv_freq_;  // [N, Dh / 2]
  const at::Tensor cos = angle.cos().unsqueeze(1), sin = angle.sin().unsqueeze(1);
  const auto split = [&](const Layer& layer, int64_t count, bool rotate, const at::Tensor& norm = {}) {
    at::Tensor parts = Through(layer, attended, precision).view({batch.size(), count, dim});
    if (norm.defined()) parts = RmsNorm(parts, norm, config_.rms_norm_eps);
    if (rotate) parts = Rotated(parts, cos, sin);
    at::Tensor padded = ToRows(rows, parts.reshape({batch.size(), count * dim}));
    padded = padded.view({rows.num_rows, rows.length, count, dim}).transpose(1, 2);  // [B, heads, T, Dh]
    return count == heads ? padded : padded.repeat_interleave(heads / count, 1);
  };
  const at::Tensor q = split(q_, heads, true, q_norm_);
  Keys keys{.k = split(k_, kv_heads, true, k_norm_), .v = split(v_, kv_heads, false)};
  if (past.first.k.defined()) {
    past.own.push_back(std::move(keys));
  } else {
    past.first = std::move(keys);
  }
  const at::Tensor x = residual + Through(o_, Mix(q, past, rows, precision), precision);
  const at::Tensor normed = RmsNorm(x, post_norm_, config_.rms_norm_eps);
  const at::Tensor inner = at::silu(Through(gate_, normed, precision)) * Through(up_, normed, precision);
  return x + Through(down_, inner, precision);
}

// Softmax attention of q over the text and over the position's own later rows, [N, heads * Dh].
at::Tensor LlamaLayer::Mix(const at::Tensor& q, const Past& past, const RowLayout& rows, Precision precision) const {
  const double scale = 1 / std::sqrt(static_cast<double>(config_.head_dim));
  std::vector<at::Tensor> scores = {MatrixProduct(q, past.first.k.transpose(2, 3), precision) * scale + rows.mask};
  for (const Keys& keys : past.own) scores.push_back((q * keys.k).sum(-1, /*keepdim=*/true) * scale);
  const at::Tensor weights = at::softmax(past.own.empty() ? scores.front() : at::cat(scores, 3), -1);
  at::Tensor mixed = MatrixProduct(weights.narrow(3, 0, rows.length), past.first.v, precision);
  for (size_t i = 0; i < past.own.size(); ++i) {
    mixed = mixed + weights.narrow(3, rows.length + static_cast<int64_t>(i), 1) * past.own[i].v;
  }
  const int64_t width = config_.num_heads * config_.head_dim;
  return ToFlat(rows, mixed.transpose(1, 2).reshape({rows.num_rows, rows.length, width}));
}

}  // namespace hydrant::train
