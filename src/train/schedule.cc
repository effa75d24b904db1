// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hydrant::train {

double Schedule::At(int64_t step) const {
  // The authors' rise begins with a step of rate 0, which changes nothing: ours begins one later.
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const auto all = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / all);
  return peak * (final_factor + (1 - final_factor) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

}  // namespace hydrant::train
