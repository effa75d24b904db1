// SPDX-License-Identifier: Apache-2.0
// The tensors of ReDrafter heads as released files spell them, and the weights as the drafter uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "draft/heads/head_kind.h"
#include "draft/heads/head_stack.h"
#include "model/weights.h"

namespace hydrant::draft {

// apple/ml-recurrent-drafter, recurrent_drafting/modeling_drafter.py
extern const HeadKind kRedrafterKind;

// The roles of its layouts, beside kBlock and kLmHead.
namespace redrafter {
inline constexpr std::string_view kToken = "token", kState = "state", kProjection = "projection";
}  // namespace redrafter

class RedrafterWeights : public HeadWeights {
 public:
  RedrafterWeights(const HeadsInfo& heads, int64_t hidden_size);
  std::vector<HeadPlace> Places() override;
  std::unique_ptr<Drafter> IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) override;

  int64_t exit_size = 0;        // E: columns of the blocks
  bool has_projection = false;  // E is not 2 * D
  model::Linear token;          // [D, D] over E(token), rnn_w; none where states are sums
  model::Linear state;          // [D, D] over the state before, rnn_u, with the bias; likewise
  model::Linear projection;     // [E, 2 * D] over concat[hidden, state]
  Head head;                    // blocks [E, E] and the lm head [V, E]
};

}  // namespace hydrant::draft
