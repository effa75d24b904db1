// SPDX-License-Identifier: Apache-2.0
// One pre-norm decoder layer over flat rows: the base model's layers, and the prefix layer of Hydra++ heads.
#pragma once

#include <array>
#include <span>

#include "kernels/ops/attention_ops.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/workspaces.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace hydrant::model {

// Rotation of the rows of one forward pass: computed once, used by every layer.
struct RowRotation {
  Matrix cos, sin;  // [R, Dh / 2]
};

// One matmul input for each kind of weight that may read it: layers may differ in format.
class InputByKind {
 public:
  void Uses(const Linear& linear);
  void Reserve(const kernels::KernelTable& table, int64_t rows, int64_t inputs);
  bool UsesFloats() const { return used_[static_cast<size_t>(kernels::InputKind::kF32)]; }
  kernels::MatmulInput& For(const kernels::Weight& weight) { return inputs_[static_cast<size_t>(weight.kind)]; }

 private:
  std::array<kernels::MatmulInput, 3> inputs_;
  std::array<bool, 3> used_{};
};

class LayerRunner {
 public:
  // `queue` and `layers` must outlive this. `attention_width`: of the rows that Run gets as `attention_input`.
  LayerRunner(kernels::Queue* queue, const ModelConfig& config, std::span<const LayerWeights> layers,
              int64_t attention_width = 0);

  // Makes room and a plan for a pass over `rows`, which must stay as they are until the pass is over. Only the last
  // `outputs` rows go through the whole layer; of the other rows only the keys and values are needed. Call it outside
  // regions; Rotate and Run are ops.
  void Reserve(std::span<const kernels::RowKv> rows, int64_t outputs);
  void Rotate(kernels::Queue& queue, std::span<const int32_t> positions, std::span<const float> inv_freq);

  // Replaces the last `outputs` rows of x [R, D] by layer(x); the other rows of x stay. Writes the keys and values of
  // all rows into `kv` first, so rows of one call see each other. `attention_input` [R, attention_width]: what q, k and
  // v read in place of the normed rows of x (EAGLE's draft layers).
  void Run(kernels::Queue& queue, const LayerWeights& weights, const kernels::KvLayer& kv, kernels::Rows x,
           kernels::ConstRows attention_input = {});

 private:
  void Attend(kernels::Queue& queue, const LayerWeights& weights, const kernels::KvLayer& kv, kernels::Rows x,
              kernels::ConstRows attention_input);
  void FeedForward(kernels::Queue& queue, const LayerWeights& weights, kernels::Rows x);

  // Rows made ready for products.
  struct Workspace {
    InputByKind hidden;         // [R, D]
    InputByKind attention;      // [R, attention_width]
    InputByKind last, context;  // [R', D] where R' < R, [R', H * Dh]
    Matrix normed;              // [R, D] where weights are floats
  };
  struct InnerWorkspace {
    InputByKind inner;  // [R', F]
    Matrix products;    // [R', F] silu(gate) * up, where each thread makes all rows by itself
  };

  const kernels::KernelTable* table_;
  int num_threads_;
  ModelConfig config_;
  int64_t attention_width_;
  std::span<const kernels::RowKv> kv_rows_;  // [R]
  int64_t num_inner_ = 0;                    // R': rows that go through the whole layer
  kernels::AttentionPlan plan_;              // of the rows that go through the whole layer
  RowRotation rotation_;
  kernels::Workspaces<Workspace> workspaces_;
  kernels::Workspaces<InnerWorkspace> inner_workspaces_;
  Matrix q_, k_, v_, context_;  // [R, H * Dh], [R, Hk * Dh] twice, [R', H * Dh]
  Matrix inner_, up_;           // [R', F]; up_ has no rows where products go part by part
};

}  // namespace hydrant::model
