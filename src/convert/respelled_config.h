// SPDX-License-Identifier: Apache-2.0
// config.json of respelled heads, with the fields that the project reads whose layout it is.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_fwd.h"
#include "convert/respelled_tensors.h"

namespace hydrant::convert {

struct ConfigFacts {
  const RespelledHeads* heads = nullptr;
  const model::ModelConfig* sizes = nullptr;
  std::string source_file;  // config.json of the source's heads; empty: none
  std::string model_file;   // of the base; empty: not named
  int64_t tp = 1;
};

base::Json ConfigOf(const std::string& layout, const ConfigFacts& facts);

}  // namespace hydrant::convert
