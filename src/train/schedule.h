// SPDX-License-Identifier: Apache-2.0
// Learning rates by step: a linear rise, then half a cosine down to a share of the peak, as zankner/Hydra,
// train/utils.py has it.
#pragma once

#include <cstdint>

namespace hydrant::train {

struct Schedule {
  double peak = 1e-3;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double final_factor = 0;  // of the peak, at the end

  // Of step 0, 1, .. total_steps - 1.
  double At(int64_t step) const;
};

}  // namespace hydrant::train
