// SPDX-License-Identifier: Apache-2.0
#include "draft/prefix_layer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hydrant::draft {

PrefixLayer::PrefixLayer(PrefixWeights weights, kernels::Queue* queue)
    : config_(weights.config),
      weights_(std::move(weights.layer)),
      norm_(std::move(weights.norm)),
      inv_freq_(model::InverseFrequencies(config_.rope, config_.head_dim)),
      queue_(queue),
      layer_(queue, config_, std::span(&weights_, 1)) {}

std::unique_ptr<PrefixCache> PrefixLayer::NewCache(int32_t max_positions, DType kv_type) const {
  const kv::KvShape shape{
      .num_layers = 1, .num_kv_heads = config_.num_kv_heads, .head_dim = config_.head_dim, .dtype = kv_type};
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
  layer_.Reserve(rows_, 1);
  kernels::Region(*queue_, [&](kernels::Queue& queue) {
    layer_.Rotate(queue, positions_, inv_freq_);
    layer_.Run(queue, weights_, cache.pool.layer(0), x_);
  });
  cache.table.Append(count);
  normed_.Resize(1, hidden.cols);
  kernels::RmsNorm(*queue_, kernels::ConstRows(x_.row(count - 1), 1, x_.cols(), x_.stride()), norm_,
                   config_.rms_norm_eps, normed_);
  last.assign(normed_.row(0), normed_.row(0) + hidden.cols);
}

}  // namespace hydrant::draft
