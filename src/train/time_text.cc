// SPDX-License-Identifier: Apache-2.0
#include "train/time_text.h"

#include <cmath>
#include <cstdint>

namespace hydrant::train {

std::string TimeText(double seconds) {
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string((whole + 30) / 60) + " min";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace hydrant::train
