// SPDX-License-Identifier: Apache-2.0
#include "draft/prefix_layer.h"

#include <algorithm>

#include "base/check.h"

namespace hydrant::draft {
namespace {

constexpr const char* kPrefix = "prefix_embeding_layer.";  // the released spelling

// A Llama layer of the base's sizes without biases or norms of heads. Published files have as many key heads as query
// heads; a file trained on a grouped-query base may have the base's number, so the key projection decides.
model::ModelConfig LayerConfig(const checkpoint::TensorSource& tensors, const HeadsInfo& info,
                               const model::ModelConfig& base) {
  model::ModelConfig config = base;
  config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = false;
  config.sliding_window = 0;
  config.rope = {};
  config.rope.theta = info.rope_theta;
  config.num_kv_heads = base.num_heads;
  const auto* k = tensors.Find(std::string(kPrefix) + "layers.0.self_attn.k_proj.weight");
  if (k != nullptr && !k->view.shape.empty() && k->view.shape[0] == base.num_kv_heads * base.head_dim) {
    config.num_kv_heads = base.num_kv_heads;
  }
  return config;
}

std::vector<float> TakeFinalNorm(checkpoint::TableLoader& loader, const model::ModelConfig& base) {
  checkpoint::TensorRow row;
  row.name = std::string(kPrefix) + "norm.weight";
  row.shape = {{base.hidden_size, "hidden_size"}};
  return ToFloats(loader.Take(row));
}

}  // namespace

PrefixLayer::PrefixLayer(checkpoint::TableLoader& loader, const HeadsInfo& info, const model::ModelConfig& base,
                         kernels::Queue* queue)
    : config_(LayerConfig(loader.source(), info, base)),
      weights_(model::TakeLayer(loader, config_, std::string(kPrefix) + "layers.0.")),
      norm_(TakeFinalNorm(loader, base)),
      inv_freq_(model::InverseFrequencies(config_.rope, config_.head_dim)),
      queue_(queue),
      layer_(queue, config_, std::span(&weights_, 1)) {
  loader.Ignore(std::string(kPrefix) + "embed_tokens.weight");
  loader.Ignore(std::string(kPrefix) + "layers.0.self_attn.rotary_emb.inv_freq");
}

std::unique_ptr<PrefixCache> PrefixLayer::NewCache(int32_t max_positions) const {
  const kv::KvShape shape{
      .num_layers = 1, .num_kv_heads = config_.num_kv_heads, .head_dim = config_.head_dim, .dtype = DType::kF32};
  return std::make_unique<PrefixCache>(shape, max_positions / kernels::kBlockPositions + 1);
}

void PrefixLayer::Run(PrefixCache& cache, kernels::ConstRows hidden, std::vector<float>& last) {
  const auto count = static_cast<int32_t>(hidden.rows);
  const int32_t first = cache.table.length();
  HYDRANT_CHECK(count > 0);
  const bool fits = cache.table.Reserve(first + count);
  HYDRANT_CHECK(fits);
  positions_.clear();
  rows_.clear();
  x_.Resize(count, hidden.cols);
  for (int32_t r = 0; r < count; ++r) {
    const int32_t position = first + r;
    positions_.push_back(position);
    rows_.push_back({.blocks = cache.table.blocks(),
                     .path = nullptr,
                     .position = position,
                     .identity_length = position + 1,
                     .slot = position});
    std::copy_n(hidden.row(r), hidden.cols, x_.row(r));
  }
  layer_.Reserve(count);
  kernels::Region(*queue_, [&](kernels::Queue& queue) {
    layer_.Rotate(queue, positions_, inv_freq_);
    layer_.Run(queue, weights_, rows_, cache.pool.layer(0), x_);
  });
  cache.table.Append(count);
  normed_.Resize(1, hidden.cols);
  kernels::RmsNorm(*queue_, kernels::ConstRows(x_.row(count - 1), 1, x_.cols(), x_.stride()), norm_,
                   config_.rms_norm_eps, normed_);
  last.assign(normed_.row(0), normed_.row(0) + hidden.cols);
}

}  // namespace hydrant::draft
