// SPDX-License-Identifier: Apache-2.0
// Stored tensors that config.json knows nothing of, or says otherwise: looked at before they are called unused.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "checkpoint/tensor_table.h"
#include "model/model_config.h"

namespace hydrant::model {

// What to warn of where stored tables of rotary frequencies, of names that start with `prefix`, are not those of
// `rope`; empty where they are, up to the rounding of f16 and bf16, or where there are none. `says` is what the
// frequencies in use come from ("config.json ('rope_theta', 'rope_scaling')").
std::string RotaryWarning(const checkpoint::TensorSource& source, const std::string& prefix, const RopeConfig& rope,
                          int64_t head_dim, const std::string& says);

// Tensors that no row has taken and the config denies: biases that are all zero change nothing and are ignored (and
// returned); for others FileError names the key.
std::vector<std::string> SettleDenied(checkpoint::TableLoader& loader, const ModelConfig& config);

}  // namespace hydrant::model
