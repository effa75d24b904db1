// SPDX-License-Identifier: Apache-2.0
// The state of a run between two steps, as one safetensors file that appears whole or not at all: parameters and both
// moments of each part. What steps draw depends on their number alone, so no generator is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "train/fit/trained_parameters.h"

namespace hydrant::train {

// What a run trains, by the names that its checkpoints have.
struct TrainedPart {
  std::string name;
  TrainedParameters* trained = nullptr;
};

// `settings`: what a run must have in common with the one that it goes on from.
void WriteCheckpoint(const std::string& path, const std::vector<TrainedPart>& trained, int64_t step,
                     const base::Json& settings);
// Returns the number of steps that are done. Throws FileError: no such file, a broken one, other settings (by name).
int64_t ReadCheckpoint(const std::string& path, const std::vector<TrainedPart>& trained, const base::Json& settings);

}  // namespace hydrant::train
