// SPDX-License-Identifier: Apache-2.0
// Stored tensors that config.json knows nothing of, or says otherwise: looked at before they are called unused.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "checkpoint/tensor_table.h"
#include "model/model_config.h"

namespace hydrant::model {

// A warning where the stored tables of rotary frequencies whose names start with `prefix` differ from those of `rope`
// by more than the rounding of f16 and bf16. Empty where they agree, or where there are none. `says` names where the
// frequencies in use come from ("config.json ('rope_theta', 'rope_scaling')").
std::string RotaryWarning(const checkpoint::TensorSource& source, const std::string& prefix, const RopeConfig& rope,
                          int64_t head_dim, const std::string& says);

// Settles tensors that no table row has taken and that the config denies. Biases that are all zero change nothing: they
// are ignored and returned. For any other such tensor throws a FileError that names the config's key.
std::vector<std::string> SettleDenied(checkpoint::TableLoader& loader, const ModelConfig& config);

}  // namespace hydrant::model
