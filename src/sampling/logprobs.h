// SPDX-License-Identifier: Apache-2.0
// How likely the base model holds tokens, by its logits as they are.
#pragma once

#include <cstdint>
#include <span>

#include "hydrant/generation.h"

namespace hydrant::sampling {

// Log probabilities by a softmax over logits [V], summed in double: of `token`, and of the `count` most likely tokens,
// best first, ties to the lower id. A NaN counts as minus infinity.
TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int32_t count);

}  // namespace hydrant::sampling
