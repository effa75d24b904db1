// SPDX-License-Identifier: Apache-2.0
// The weights of Hydra and Hydra++ heads as the drafter uses them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "draft/head_stack.h"
#include "draft/head_tensors.h"
#include "draft/prefix_weights.h"
#include "model/weights.h"

namespace hydrant::draft {

// Head i's first block: two linears over concat[hidden, E(root), E(child 1), .., E(child i)], by input slice
// (docs/algorithms/hydra_heads.md): the hidden slice once per sequence, each embedding slice once per node.
struct HydraHead {
  std::vector<model::Linear> linear, residual;  // [i + 2] of [D, D]: the hidden slice with the bias, the embeddings'
  Head rest;                                    // blocks 2..L and the lm head
};

struct HydraWeights {
  HeadsInfo info;
  std::unique_ptr<checkpoint::TensorSource> tensors;
  std::vector<HydraHead> heads;    // [K]
  std::vector<int32_t> token_map;  // [V'], row j of an lm head is the logit of token_map[j]; empty = identity
  std::unique_ptr<PrefixWeights> prefix;
  std::vector<std::string> used_tensors;  // as the source spells them
  uint64_t bytes = 0;
};

// Throws FileError for heads that do not fit the base.
HydraWeights LoadHydra(HeadsFile file, const model::ModelWeights& base);
std::vector<model::Linear*> LinearsOf(HydraWeights& weights);

}  // namespace hydrant::draft
