// SPDX-License-Identifier: Apache-2.0
// Logits and hidden states of a prompt, and of the heads after it: what parity tests and researchers look at.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "load/loaded_model.h"
#include "tensor/tensor.h"

namespace hydrant::eval {

struct EvalLogitsResult {
  Matrix logits;       // [T, V]
  Matrix hidden;       // [T, D], after the final norm
  Matrix head_logits;  // [K, V]; row i = head i after root and path[0 .. i-1]; 0 rows without a drafter
  int32_t root = 0;    // argmax of the last row of logits
};

// `path`: drafted tokens after the root, at most K; where it is shorter, each head's own argmax is followed.
// `progress`: called between parts of the prompt with the share that is done; may throw to end it.
// Throws UserError as CheckPrompt does, and for a path that is too long or has ids outside the vocabulary.
EvalLogitsResult EvalLogits(load::LoadedModel& loaded, const std::vector<int32_t>& prompt_ids,
                            const std::vector<int32_t>& path, const std::function<void(double share)>& progress = {});

}  // namespace hydrant::eval
