// SPDX-License-Identifier: Apache-2.0
// The state of a run between two steps, as one safetensors file that appears whole or not at all: parameters and both
// moments of each part. What steps draw depends on their number alone, so no generator is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "train/fit/adamw.h"
#include "train/fit/parameters.h"

namespace hydrant::train {

// Parameters that have an optimizer of their own: a kind of heads, or a base.
struct TrainedPart {
  std::string name;
  Parameters* parameters = nullptr;
  AdamW* optimizer = nullptr;
};

// `settings`: what a run must have in common with the one that it goes on from.
void WriteCheckpoint(const std::string& path, const std::vector<TrainedPart>& trained, int64_t step,
                     const base::Json& settings);
// Returns the number of steps that are done. Throws FileError: no such file, a broken one, other settings (by name).
int64_t ReadCheckpoint(const std::string& path, const std::vector<TrainedPart>& trained, const base::Json& settings);

}  // namespace hydrant::train
