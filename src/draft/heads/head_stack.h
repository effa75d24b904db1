// SPDX-License-Identifier: Apache-2.0
// What Medusa and Hydra heads share: residual blocks of one width and an lm head.
#pragma once

#include <cstdint>
#include <vector>

#include "draft/heads/head_tensors.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/top_k.h"
#include "kernels/ops/workspaces.h"
#include "model/decoder.h"
#include "model/layer.h"
#include "model/weights.h"

namespace hydrant::draft {

struct Head {
  std::vector<model::Linear> blocks;  // [D, D] each; tied ones are the same bytes
  model::Linear lm_head;              // [V', D]
};

uint64_t BytesOf(const Head& head);  // that a pass reads; a block that several layers share counts for each of them

// The hidden states that heads read (Drafter::WantedLayers).
int32_t WantedLayer(const HeadsInfo& info, const model::ModelConfig& base);

// What is wanted of a head: its logits [R, V'], or the best tokens of each row.
struct HeadOutput {
  kernels::Rows logits;
  std::span<const int32_t> token_map;        // of the best tokens; empty: output = token
  std::span<const kernels::TopKRule> rules;  // [R]; empty: logits
  kernels::TopKOutput* best = nullptr;
};

// Runs blocks and lm head over rows: x -> x + silu(block(x)), then logits.
class HeadRunner {
 public:
  // `queue` must outlive this.
  explicit HeadRunner(const kernels::Queue* queue);
  // Call it before Reserve for every head that Run will get.
  void Uses(const Head& head);
  // Makes room for rows [R, D]. Outside regions.
  void Reserve(int64_t rows, int64_t hidden_size);
  // An op, inside a region. The rows are `residual`, or residual + silu(linear) where linear has data. Best tokens are
  // ready when the region is over.
  void Run(kernels::Queue& queue, const Head& head, kernels::ConstRows residual, kernels::ConstRows linear,
           const HeadOutput& output);

 private:
  // What blocks read and write.
  struct Workspace {
    model::InputByKind input;
    Matrix x, linear;  // [R, D]
  };

  const kernels::KernelTable* table_;
  kernels::Workspaces<Workspace> workspaces_;
};

}  // namespace hydrant::draft
