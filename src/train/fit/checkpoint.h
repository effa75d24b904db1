// SPDX-License-Identifier: Apache-2.0
// The state of a run between two steps, as one safetensors file that appears whole or not at all: parameters and both
// moments of each kind of heads. What steps draw depends on their number alone, so no generator is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "train/fit/head_fit.h"

namespace hydrant::train {

struct NamedFit {
  std::string name;
  HeadFit* fit = nullptr;
};

// `settings`: what a run must have in common with the one that it goes on from.
void WriteCheckpoint(const std::string& path, const std::vector<NamedFit>& fits, int64_t step,
                     const base::Json& settings);
// Returns the number of steps that are done. Throws FileError: no such file, a broken one, other settings (by name).
int64_t ReadCheckpoint(const std::string& path, const std::vector<NamedFit>& fits, const base::Json& settings);

}  // namespace hydrant::train
