// SPDX-License-Identifier: Apache-2.0
// The weights of Hydra++'s prefix layer.
#pragma once

#include <vector>

#include "checkpoint/tensor_table.h"
#include "draft/head_tensors.h"
#include "model/weights.h"

namespace hydrant::draft {

struct PrefixWeights {
  model::ModelConfig config;  // of the layer
  model::LayerWeights layer;
  std::vector<float> norm;  // [D]
};

// Rope base 10000 and no rope scaling as published, whatever the base model uses (docs/formats.md).
PrefixWeights TakePrefixLayer(checkpoint::TableLoader& loader, const HeadsInfo& info, const model::ModelConfig& base);

}  // namespace hydrant::draft
