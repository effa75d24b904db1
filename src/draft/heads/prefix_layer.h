// SPDX-License-Identifier: Apache-2.0
// Hydra++'s prefix layer: one decoder layer with keys and values of its own, run over committed rows only (never over
// tree nodes). Its output at the last committed row takes the place of the base model's hidden state in the heads'
// input.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/heads/hydra_weights.h"
#include "kernels/ops/ops.h"
#include "kv/kv_cache.h"
#include "model/layer.h"

namespace hydrant::draft {

// Rows of one sequence, which come right after the positions of earlier calls.
struct PrefixInput {
  kernels::ConstRows hidden;  // [n, D], n >= 1
  int32_t first_position = 0;
  const int32_t* blocks = nullptr;     // of the sequence; slot = position
  std::vector<float>* last = nullptr;  // gets the output of the last row [D]
};

class PrefixLayer {
 public:
  PrefixLayer(PrefixWeights weights, kernels::Queue* queue);

  kv::LayerShape kv_shape() const { return {.num_kv_heads = config_.num_kv_heads, .head_dim = config_.head_dim}; }
  uint64_t bytes_read() const { return bytes_read_; }  // of weights, so far
  // All sequences in one pass over the weights. `kv`: the layer's own, of that shape.
  void Run(std::span<const PrefixInput> inputs, const kernels::KvLayer& kv);

 private:
  void AddRow(const PrefixInput& input, int64_t row);

  model::ModelConfig config_;  // of the layer
  model::LayerWeights weights_;
  std::vector<float> norm_;      // [D]
  std::vector<float> inv_freq_;  // [Dh / 2]
  kernels::Queue* queue_;
  model::LayerRunner layer_;
  std::vector<int32_t> positions_;
  std::vector<kernels::RowKv> rows_;
  uint64_t bytes_read_ = 0;
  Matrix x_, normed_;  // [all rows, D], [sequences, D]
};

}  // namespace hydrant::draft
