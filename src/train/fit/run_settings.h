// SPDX-License-Identifier: Apache-2.0
// What a run is told, checked and written down: a checkpoint is gone on with under the same settings only.
#pragma once

#include <string>

#include "base/json.h"
#include "train/fit/networks/network.h"
#include "train/head_rows.h"
#include "train/recipe.h"
#include "train/run_data.h"
#include "train/run_options.h"

namespace hydrant::train {

// "auto", "f32" or "bf16". Throws UserError.
Precision PrecisionNamed(const std::string& name);

// A folder's name for an arch: "hydra++" is "hydra_pp".
std::string FolderNameOf(std::string arch);

base::Json SettingsOf(const RunOptions& options, const RunData& run, Precision precision);
base::Json SettingsOf(const OptimizerRecipe& recipe);
base::Json SettingsOf(const Recipe& recipe);
base::Json SettingsOf(const HeadShape& shape, const draft::HeadsInfo& info);

}  // namespace hydrant::train
