// SPDX-License-Identifier: Apache-2.0
#include "train/fit/llama_layer.h"

#include <algorithm>
#include <cmath>

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

LlamaLayer::LlamaLayer(const model::ModelConfig& config, const std::string& prefix, Parameters& parameters,
                       at::Generator& random)
    : config_(config) {
  at::NoGradGuard no_grad;
  const auto matrix = [&](const char* name) {
    at::Tensor tensor = parameters.Get(prefix + name + ".weight");
    tensor.normal_(0, kInitDeviation, random);
    return tensor;
  };
  const auto norm = [&](const char* name) {
    at::Tensor tensor = parameters.Get(prefix + name + ".weight");
    tensor.fill_(1);
    return tensor;
  };
  input_norm_ = norm("input_layernorm");
  post_norm_ = norm("post_attention_layernorm");
  q_ = matrix("self_attn.q_proj");
  k_ = matrix("self_attn.k_proj");
  v_ = matrix("self_attn.v_proj");
  o_ = matrix("self_attn.o_proj");
  gate_ = matrix("mlp.gate_proj");
  up_ = matrix("mlp.up_proj");
  down_ = matrix("mlp.down_proj");
  const std::vector<float> inv_freq = model::InverseFrequencies(config_.rope, config_.head_dim);
  inv_freq_ = at::empty({static_cast<int64_t>(inv_freq.size())});
  std::copy(inv_freq.begin(), inv_freq.end(), inv_freq_.data_ptr<float>());
}

at::Tensor LlamaLayer::Run(const at::Tensor& x, const BatchTensors& batch, Precision precision) const {
  const at::Tensor attended = x + Attend(RmsNorm(x, input_norm_, config_.rms_norm_eps), batch, precision);
  const at::Tensor normed = RmsNorm(attended, post_norm_, config_.rms_norm_eps);
  const at::Tensor inner = at::silu(Product(normed, gate_, {}, precision)) * Product(normed, up_, {}, precision);
  return attended + Product(inner, down_, {}, precision);
}

at::Tensor LlamaLayer::Attend(const at::Tensor& x, const BatchTensors& batch, Precision precision) const {
  const int64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads, dim = config_.head_dim;
  const RowLayout& rows = batch.rows;
  const at::Tensor angle = batch.position.to(at::kFloat).unsqueeze(1) * inv_freq_;  // [N, Dh / 2]
  const at::Tensor cos = angle.cos().unsqueeze(1), sin = angle.sin().unsqueeze(1);
  const auto split = [&](const at::Tensor& weight, int64_t count, bool rotate) {
    at::Tensor parts = Product(x, weight, {}, precision).view({batch.size(), count, dim});
    if (rotate) parts = Rotated(parts, cos, sin);
    at::Tensor padded = ToRows(rows, parts.reshape({batch.size(), count * dim}));
    padded = padded.view({rows.num_rows, rows.length, count, dim}).transpose(1, 2);  // [B, heads, T, Dh]
    return count == heads ? padded : padded.repeat_interleave(heads / count, 1);
  };
  const at::Tensor q = split(q_, heads, true), k = split(k_, kv_heads, true), v = split(v_, kv_heads, false);
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(dim)) + rows.mask;
  const at::Tensor mixed = at::matmul(at::softmax(scores, -1), v).transpose(1, 2);
  return Product(ToFlat(rows, mixed.reshape({rows.num_rows, rows.length, heads * dim})), o_, {}, precision);
}

}  // namespace hydrant::train
