// SPDX-License-Identifier: Apache-2.0
// The weights of heads that see only the hidden state: Medusa, and Hydra's ungrounded MLP.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "draft/head_stack.h"
#include "draft/head_tensors.h"
#include "model/linear_packer.h"
#include "model/weights.h"

namespace hydrant::draft {

struct MedusaWeights {
  HeadsInfo info;
  std::unique_ptr<checkpoint::TensorSource> tensors;
  std::vector<Head> heads;         // [K]
  std::vector<int32_t> token_map;  // [V'], row j of an lm head is the logit of token_map[j]; empty = identity
  uint64_t bytes = 0;
};

// Throws FileError for heads that do not fit the base.
MedusaWeights LoadMedusa(HeadsFile file, const model::ModelWeights& base);
void AddLinears(MedusaWeights& weights, const model::FormatChoice& choice, model::LinearPacker& packer);

}  // namespace hydrant::draft
