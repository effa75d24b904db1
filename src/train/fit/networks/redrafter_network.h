// SPDX-License-Identifier: Apache-2.0
// ReDrafter heads: a recurrent state over the tokens of a path, beside the base's hidden state, then residual blocks
// and an lm head. Sources: Cheng et al. (arXiv 2403.09919); apple/ml-recurrent-drafter, train/model.py.
#pragma once

#include <memory>

#include "train/fit/networks/network.h"

namespace hydrant::train {

// See MakeNetwork. The lm head starts as the base's over the hidden state's half, and as zeros over the rest.
std::unique_ptr<Network> MakeRedrafterNetwork(const draft::HeadsInfo& info, const BaseTensors& base,
                                              Parameters& parameters, at::Generator& random);

}  // namespace hydrant::train
