// SPDX-License-Identifier: Apache-2.0
// The weights of Hydra's cross-attn heads. Their layout is among those of the other Hydra heads (hydra_weights.h).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "draft/heads/head_kind.h"
#include "draft/heads/head_stack.h"
#include "model/weights.h"

namespace hydrant::draft {

// The roles of its layout.
inline constexpr std::string_view kCrossQuery = "cross_q", kCrossKey = "cross_k", kCrossValue = "cross_v",
                                  kCrossOutput = "cross_o", kCrossGate = "cross_gate", kCrossUp = "cross_up",
                                  kCrossDown = "cross_down", kCrossInputNorm = "cross_input_norm",
                                  kCrossPostNorm = "cross_post_norm";

class CrossAttnWeights : public HeadWeights {
 public:
  explicit CrossAttnWeights(const HeadsInfo& heads) { info = heads; }
  std::vector<HeadPlace> Places() override;
  std::unique_ptr<Drafter> IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) override;

  model::ModelConfig config;  // of the layer
  model::LayerWeights layer;  // q reads normed embeddings; k and v read hidden states by the same norm
  Head head;                  // no blocks: the base's lm head
};

}  // namespace hydrant::draft
