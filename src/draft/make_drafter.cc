// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "draft/drafter.h"
#include "draft/head_tensors.h"
#include "draft/hydra.h"
#include "draft/medusa.h"
#include "hydrant/error.h"

namespace hydrant::draft {

std::unique_ptr<Drafter> MakeDrafter(const std::string& folder, const model::ModelWeights& base, kernels::Queue* queue,
                                     std::vector<std::string>* warnings) {
  HeadsFile file = OpenHeads(folder);
  warnings->insert(warnings->end(), file.info.warnings.begin(), file.info.warnings.end());
  if (file.info.hidden_layer_offset > base.config.num_layers) {
    throw FileError(file.info.config_file, "'hidden_state_offset' is " + std::to_string(file.info.hidden_layer_offset) +
                                               ", but the base (" + base.config.file + ") has " +
                                               std::to_string(base.config.num_layers) + " layers");
  }
  // A new kind of head is one line here, one pair of files, and its rows in head_tensors.
  if (file.info.sequentially_dependent) return MakeHydra(std::move(file), base, queue);
  return MakeIndependentHeads(std::move(file), base, queue);
}

}  // namespace hydrant::draft
