// SPDX-License-Identifier: Apache-2.0
// The tensors of Hydra and Hydra++ heads as released files spell them, and the weights as the drafter uses them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "draft/heads/head_kind.h"
#include "draft/heads/head_stack.h"
#include "model/weights.h"

namespace hydrant::draft {

// All heads of a 'hydra_head_arch'. Ungrounded ones see the hidden state alone: their weights are MedusaWeights.
extern const HeadKind kHydraKind;

// The roles of its tensors, beside kBlock and kLmHead. The first block of a head has two linears.
inline constexpr std::string_view kFirstLinear = "first_linear", kFirstResidual = "first_residual";
inline constexpr std::string_view kPrefixLayer = "prefix_layer", kPrefixNorm = "prefix_norm";

// Head i's first block: two linears over concat[hidden, E(root), E(child 1), .., E(child i)], by input slice
// (docs/algorithms/hydra_heads.md): the hidden slice once per sequence, each embedding slice once per node.
struct HydraHead {
  std::vector<model::Linear> linear, residual;  // [i + 2] of [D, D]: the hidden slice with the bias, the embeddings'
  Head rest;                                    // blocks 2..L and the lm head
};

// Hydra++'s prefix layer.
struct PrefixWeights {
  model::ModelConfig config;  // of the layer
  model::LayerWeights layer;
  std::vector<float> norm;  // [D]
};

class HydraWeights : public HeadWeights {
 public:
  // Room for the heads that `info` counts, and for no prefix layer.
  explicit HydraWeights(const HeadsInfo& heads);
  std::vector<HeadPlace> Places() override;
  std::unique_ptr<Drafter> IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) override;

  std::vector<HydraHead> heads;  // [K]
  std::unique_ptr<PrefixWeights> prefix;
};

}  // namespace hydrant::draft
