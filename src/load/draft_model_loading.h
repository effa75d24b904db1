// SPDX-License-Identifier: Apache-2.0
// From the folder of a small language model to a drafter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "model/weights.h"

namespace hydrant::load {

// The drafter over the model in `folder`, packed as `packing` says (its draft_vocab cuts the lm head). Throws FileError
// for a model that cannot be read, or whose tokens are not those of `base`, whose folder is `base_folder`.
std::unique_ptr<draft::Drafter> LoadDraftModel(const std::string& folder, const model::ModelWeights& base,
                                               const std::string& base_folder, kernels::Queue* queue,
                                               draft::HeadPacking& packing, std::vector<std::string>* warnings);

}  // namespace hydrant::load
