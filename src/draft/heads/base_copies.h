// SPDX-License-Identifier: Apache-2.0
// What a heads' file repeats of a base: compared with the base in use before it is not used.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/tensor_source.h"
#include "draft/heads/head_tensors.h"
#include "model/weights.h"

namespace hydrant::draft {

// Whether a tensor beside heads is one that a base model has, by its name; adapters' spellings too.
bool IsBaseTensor(std::string_view name);

// A warning where such tensors differ from the base's by more than the rounding of a copy in bf16 or f16. Empty where
// they agree, or where there are none. Embeddings, lm heads and norms are compared as a whole, other matrices by their
// first and last elements. Only tensors that the base holds as floats are compared.
std::string BaseCopiesWarning(const HeadsFile& file, const model::ModelWeights& base);

// Adds to the heads' warnings where their file or the base that their config names is not this base.
void CheckBaseOf(HeadsFile& file, const model::ModelWeights& base);

}  // namespace hydrant::draft
