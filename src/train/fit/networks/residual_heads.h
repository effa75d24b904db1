// SPDX-License-Identifier: Apache-2.0
// Medusa, Hydra and Hydra++ heads: K stacks of residual blocks, x -> x + silu(linear(x)), with an lm head each.
// Sources: the Hydra paper, sections 3 and 5; FasterDecoding/Medusa, medusa_model.py; zankner/Hydra, mlp_head.py and
// prefix_mlp_head.py.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/fit/networks/network.h"

namespace hydrant::train {

// See MakeNetwork.
std::unique_ptr<Network> MakeResidualHeads(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                                           const model::ModelConfig& base_config, const BaseTensors& base,
                                           Parameters& parameters, at::Generator& random);

}  // namespace hydrant::train
