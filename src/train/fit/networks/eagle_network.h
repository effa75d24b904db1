// SPDX-License-Identifier: Apache-2.0
// EAGLE-1 and EAGLE-3 heads: one decoder layer that continues the base's hidden states, token by token. Pass i stands i
// tokens below a position and reads the true token there and the layer's own output of pass i - 1 (EAGLE-3's
// training-time test); EAGLE-1 is trained on pass 0 alone.
// Sources: EAGLE (arXiv 2401.15077), EAGLE-3 (arXiv 2503.01840); SafeAILab/EAGLE, cnets1.py, train/main.py, and
// traineagle3/cnets.py.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/fit/networks/network.h"

namespace hydrant::train {

// See MakeNetwork.
std::unique_ptr<Network> MakeEagleNetwork(const draft::HeadsInfo& info, const std::vector<int32_t>& draft_vocab,
                                          const model::ModelConfig& base_config, const BaseTensors& base,
                                          Parameters& parameters, at::Generator& random);

}  // namespace hydrant::train
