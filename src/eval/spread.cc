// SPDX-License-Identifier: Apache-2.0
#include "eval/spread.h"

#include <algorithm>

namespace hydrant::eval {

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {.median = median, .min = values.front(), .max = values.back()};
}

}  // namespace hydrant::eval
