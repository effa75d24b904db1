// SPDX-License-Identifier: Apache-2.0
// The weights of heads that see only the hidden state: Medusa, and Hydra's ungrounded MLP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "draft/head_stack.h"
#include "draft/head_tensors.h"
#include "model/weights.h"

namespace hydrant::draft {

struct MedusaWeights {
  HeadsInfo info;
  std::unique_ptr<checkpoint::TensorSource> tensors;
  std::vector<Head> heads;                // [K]
  std::vector<int32_t> token_map;         // [V'], row j of an lm head is the logit of token_map[j]; empty = identity
  std::vector<std::string> used_tensors;  // as the source spells them
  uint64_t bytes = 0;
};

// Throws FileError for heads that do not fit the base.
MedusaWeights LoadMedusa(HeadsFile file, const model::ModelWeights& base);
// Without the base's lm head, where the heads use that.
std::vector<model::Linear*> LinearsOf(MedusaWeights& weights);

}  // namespace hydrant::draft
