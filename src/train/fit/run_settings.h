// SPDX-License-Identifier: Apache-2.0
// What a run is told, checked and written down: a checkpoint is gone on with under the same settings only.
#pragma once

#include <optional>
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

// Where settings differ: "heads[0].recipe.peak_rate".
struct SettingDifference {
  std::string name;
  base::Json found, expected;
};
// The first of `expected` that `found` has otherwise, or lacks (null). Members that `found` alone has do not count.
std::optional<SettingDifference> FirstDifference(const base::Json& found, const base::Json& expected);

// A folder's name for an arch: "hydra++" is "hydra_pp".
std::string FolderNameOf(std::string arch);

base::Json SettingsOf(const RunOptions& options, const RunData& run, Precision precision);
base::Json SettingsOf(const OptimizerRecipe& recipe);
base::Json SettingsOf(const Recipe& recipe);
base::Json SettingsOf(const HeadShape& shape, const draft::HeadsInfo& info);

}  // namespace hydrant::train
