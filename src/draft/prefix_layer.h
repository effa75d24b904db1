// SPDX-License-Identifier: Apache-2.0
// Hydra++'s prefix layer: one decoder layer with its own KV cache, run over committed rows only (never over tree
// nodes). Its output at the last committed row takes the place of the base model's hidden state in the heads' input.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "draft/prefix_weights.h"
#include "kernels/ops.h"
#include "kv/kv_cache.h"
#include "model/layer.h"

namespace hydrant::draft {

// The layer's KV of one sequence. Lags the base's by nothing: rows are absorbed at every commit.
struct PrefixCache {
  PrefixCache(const kv::KvShape& shape, int32_t num_blocks) : pool(shape, num_blocks), table(&pool) {}
  kv::BlockPool pool;
  kv::BlockTable table;
};

class PrefixLayer {
 public:
  PrefixLayer(PrefixWeights weights, kernels::Queue* queue);

  std::unique_ptr<PrefixCache> NewCache(int32_t max_positions, DType kv_type) const;
  // Runs the rows, which stand after those absorbed before, and returns the last output [D].
  void Run(PrefixCache& cache, kernels::ConstRows hidden, std::vector<float>& last);

 private:
  model::ModelConfig config_;  // of the layer
  model::LayerWeights weights_;
  std::vector<float> norm_;      // [D]
  std::vector<float> inv_freq_;  // [Dh / 2]
  kernels::Queue* queue_;
  model::LayerRunner layer_;
  std::vector<int32_t> positions_;
  std::vector<kernels::RowKv> rows_;
  Matrix x_, normed_;
};

}  // namespace hydrant::draft
