// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/cross_attn_weights.h"

#include <utility>

#include "draft/heads/cross_attn.h"

namespace hydrant::draft {

std::vector<HeadPlace> CrossAttnWeights::Places() {
  std::vector<HeadPlace> places;
  const auto linear = [&](std::string_view role, model::Linear& target) {
    places.push_back({.role = role, .head = 0, .linear = &target, .layer_config = &config});
  };
  linear(kCrossQuery, layer.q);
  linear(kCrossKey, layer.k);
  linear(kCrossValue, layer.v);
  linear(kCrossOutput, layer.o);
  linear(kCrossGate, layer.gate);
  linear(kCrossUp, layer.up);
  linear(kCrossDown, layer.down);
  places.push_back({.role = kCrossInputNorm, .head = 0, .vector = &layer.input_norm});
  places.push_back({.role = kCrossPostNorm, .head = 0, .vector = &layer.post_attention_norm});
  linear(kLmHead, head.lm_head);
  return places;
}

std::unique_ptr<Drafter> CrossAttnWeights::IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) {
  return MakeCrossAttn(std::move(*this), base, queue);
}

}  // namespace hydrant::draft
