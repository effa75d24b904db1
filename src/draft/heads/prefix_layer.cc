// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/prefix_layer.h"

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

// Only the last row of each sequence goes through the whole layer; those rows come after all others.
void PrefixLayer::Run(std::span<const PrefixInput> inputs, const kernels::KvLayer& kv) {
  int64_t count = 0;
  for (const PrefixInput& input : inputs) count += input.hidden.rows;
  const auto num_last = static_cast<int64_t>(inputs.size());
  HYDRANT_CHECK(num_last > 0);
  positions_.clear();
  rows_.clear();
  x_.Resize(count, inputs.front().hidden.cols);
  for (const PrefixInput& input : inputs) {
    HYDRANT_CHECK(input.hidden.rows > 0);
    for (int64_t r = 0; r + 1 < input.hidden.rows; ++r) AddRow(input, r);
  }
  for (const PrefixInput& input : inputs) AddRow(input, input.hidden.rows - 1);
  layer_.Reserve(rows_, num_last);
  kernels::Region(*queue_, [&](kernels::Queue& queue) {
    layer_.Rotate(queue, positions_, inv_freq_);
    layer_.Run(queue, weights_, kv, x_);
  });
  for (const model::Linear* linear : model::LinearsOf(weights_)) bytes_read_ += linear->bytes();
  normed_.Resize(num_last, x_.cols());
  kernels::RmsNorm(*queue_, kernels::ConstRows(x_).Part(count - num_last, num_last), norm_, config_.rms_norm_eps,
                   normed_);
  for (size_t s = 0; s < inputs.size(); ++s) {
    const std::span<const float> row = std::as_const(normed_).row_span(static_cast<int64_t>(s));
    inputs[s].last->assign(row.begin(), row.end());
  }
}

void PrefixLayer::AddRow(const PrefixInput& input, int64_t row) {
  const int32_t position = input.first_position + static_cast<int32_t>(row);
  std::copy_n(input.hidden.row(row), x_.cols(), x_.row(static_cast<int64_t>(rows_.size())));
  positions_.push_back(position);
  rows_.push_back({.blocks = input.blocks,
                   .path = nullptr,
                   .position = position,
                   .identity_length = position + 1,
                   .slot = position});
}

}  // namespace hydrant::draft
