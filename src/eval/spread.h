// SPDX-License-Identifier: Apache-2.0
// How several timings of one thing are summed up. Shared machines differ from second to second, so that a figure
// without its spread says little.
#pragma once

#include <vector>

namespace hydrant::eval {

struct Spread {
  double median = 0, min = 0, max = 0;
};

// All zero where there are none.
Spread SpreadOf(std::vector<double> values);

}  // namespace hydrant::eval
