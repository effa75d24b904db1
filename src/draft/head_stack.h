// SPDX-License-Identifier: Apache-2.0
// What Medusa and Hydra heads share: residual blocks of one width and an lm head.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/tensor_table.h"
#include "draft/head_tensors.h"
#include "kernels/ops.h"
#include "model/weights.h"

namespace hydrant::draft {

struct Head {
  std::vector<model::Linear> blocks;  // [D, D] each; tied ones are the same bytes
  model::Linear lm_head;              // [V', D]
};

// Blocks `first_layer` .. num_layers - 1 of a head. Blocks whose name is absent, or whose bytes equal the first of
// them, are that one: released heads repeat one module (docs/formats.md), and one copy is read from memory once.
std::vector<model::Linear> TakeBlocks(checkpoint::TableLoader& loader, const HeadsFile& file, int64_t hidden_size,
                                      int32_t head, int32_t first_layer);

model::Linear TakeLinear(checkpoint::TableLoader& loader, const checkpoint::TensorRow& weight, bool bias,
                         bool bias_optional = false);

// Runs blocks and lm head over rows: x -> x + silu(block(x)), then logits. x [R, D] is overwritten; logits [R, V'].
class HeadRunner {
 public:
  explicit HeadRunner(kernels::Queue* queue) : queue_(queue) {}
  void Run(const Head& head, Matrix& x, Matrix& logits);

 private:
  kernels::Queue* queue_;
  Matrix linear_;  // [R, D]
};

}  // namespace hydrant::draft
