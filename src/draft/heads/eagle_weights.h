// SPDX-License-Identifier: Apache-2.0
// The tensors of EAGLE and EAGLE-3 heads as released files spell them, and the weights as the drafter uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "draft/heads/head_kind.h"
#include "draft/heads/head_stack.h"
#include "model/weights.h"

namespace hydrant::draft {

// EAGLE-1 and EAGLE-2 share their weights, and differ in the tree (eagle/model/cnets1.py); EAGLE-3 has weights of its
// own (eagle/model/cnets.py).
extern const HeadKind kEagleKind;

// The roles of a layout that has the first form's fc before a whole decoder layer: Hydra's eagle-attn
// (hydra_weights.h).
inline constexpr std::string_view kEagleFc = "fc", kEagleLayer = "layer";

// The roles of EAGLE's own layouts, beside kEagleFc and the lm heads.
namespace eagle {
inline constexpr std::string_view kQuery = "q", kKey = "k", kValue = "v", kOutput = "o";
inline constexpr std::string_view kGate = "gate", kUp = "up", kDown = "down";
inline constexpr std::string_view kInputNorm = "input_norm", kHiddenNorm = "hidden_norm", kPostNorm = "post_norm",
                                  kNorm = "norm";
}  // namespace eagle

class EagleWeights : public HeadWeights {
 public:
  explicit EagleWeights(const HeadsInfo& heads) { info = heads; }
  std::vector<HeadPlace> Places() override;
  std::unique_ptr<Drafter> IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) override;

  bool is_third = false;               // EAGLE-3
  bool norm_before_residual = false;   // EAGLE-3 of the speculators library: the residual is the normed hidden state
  model::ModelConfig config;           // of the layer
  std::vector<int32_t> hidden_layers;  // whose states it reads (model/decoder.h)
  model::Linear fc;                // [D, 2 * D] over concat[E(token), hidden]; EAGLE-3: [D, 3 * D] over three layers
  model::LayerWeights layer;       // EAGLE-1: without input_norm (eagle-attn: with it); EAGLE-3: q, k, v read 2 * D
  std::vector<float> hidden_norm;  // [D], EAGLE-3: of the hidden state; layer.input_norm: of the embedding
  std::vector<float> norm;         // [D], EAGLE-3: before the lm head
  Head head;                       // no blocks: the lm head
};

}  // namespace hydrant::draft
