// SPDX-License-Identifier: Apache-2.0
// One pre-norm decoder layer over flat rows: the base model's layers, and the prefix layer of Hydra++ heads.
#pragma once

#include <span>

#include "kernels/ops.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace hydrant::model {

// Rotation of the rows of one forward pass: computed once, used by every layer.
struct RowRotation {
  Matrix cos, sin;  // [R, Dh / 2]
};

class LayerRunner {
 public:
  // `queue` must outlive this.
  LayerRunner(kernels::Queue* queue, const ModelConfig& config);

  void Rotate(std::span<const int32_t> positions, std::span<const float> inv_freq, RowRotation& rotation);

  // x [R, D] -> layer(x), in place. Writes the rows' keys and values into `kv` first, so rows of one call see each
  // other.
  void Run(const LayerWeights& weights, const RowRotation& rotation, std::span<const kernels::RowKv> rows,
           const kernels::KvLayer& kv, kernels::Rows x);

 private:
  void Attend(const LayerWeights& weights, const RowRotation& rotation, std::span<const kernels::RowKv> rows,
              const kernels::KvLayer& kv, kernels::Rows x);
  void FeedForward(const LayerWeights& weights, kernels::Rows x);

  kernels::Queue* queue_;
  ModelConfig config_;
  Matrix normed_;               // [R, D]
  Matrix q_, k_, v_, context_;  // [R, H * Dh], [R, Hk * Dh] twice, [R, H * Dh]
  Matrix gate_, up_;            // [R, F]
};

}  // namespace hydrant::model
