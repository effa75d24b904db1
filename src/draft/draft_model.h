// SPDX-License-Identifier: Apache-2.0
// A small language model that drafts for a large one with the same tokens (Leviathan et al., 2023; Chen et al., 2023).
// docs/algorithms/draft_models.md
#pragma once

#include <cstdint>
#include <memory>

#include "draft/drafter.h"
#include "model/weights.h"

namespace hydrant::draft {

// `vocab_size`: of the base; drafts are tokens below it. `token_map`: of the outputs of the model's lm head where it
// was cut (draft_vocab.h); empty: output o is token o. `queue` must outlive the drafter.
std::unique_ptr<Drafter> MakeDraftModel(model::ModelWeights weights, std::vector<int32_t> token_map, int64_t vocab_size,
                                        kernels::Queue* queue);

}  // namespace hydrant::draft
