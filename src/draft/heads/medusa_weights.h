// SPDX-License-Identifier: Apache-2.0
// Heads that see only the hidden state: the tensors of Medusa heads as released files spell them, and the weights,
// which Hydra's ungrounded heads have too.
#pragma once

#include <memory>
#include <vector>

#include "draft/heads/head_kind.h"
#include "draft/heads/head_stack.h"
#include "model/weights.h"

namespace hydrant::draft {

extern const HeadKind kMedusaKind;

class MedusaWeights : public HeadWeights {
 public:
  // Room for the heads that `info` counts.
  explicit MedusaWeights(const HeadsInfo& heads);
  std::vector<HeadPlace> Places() override;
  std::unique_ptr<Drafter> IntoDrafter(const model::ModelWeights& base, kernels::Queue* queue) override;

  std::vector<Head> heads;  // [K]
};

// The places of a head's blocks from `first_layer` on, each tied to the first of them, and of its lm head.
void AddPlaces(Head& head, const HeadsInfo& info, int32_t number, int32_t first_layer, std::vector<HeadPlace>& places);

}  // namespace hydrant::draft
