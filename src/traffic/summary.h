// SPDX-License-Identifier: Apache-2.0
// How many measured times are summed up, and when requests of an open loop are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace hydrant::traffic {

struct Summary {
  size_t count = 0;  // of values; the others are 0 where there are none
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, min = 0, max = 0;
};

Summary Summarized(std::vector<double> values);

// The value below which `share` (0 to 1) of the sorted values lie, between two of them by a straight line: NumPy's and
// vLLM's rule. Needs one value at least.
double Percentile(const std::vector<double>& sorted, double share);

// Seconds between requests that arrive independently of one another (a Poisson process). The numbers hang on the seed
// alone, on every machine.
class PoissonGaps {
 public:
  // `rate`: requests a second, above 0.
  PoissonGaps(double rate, uint64_t seed) : rate_(rate), bits_(seed) {}
  double Next();

 private:
  double rate_;
  std::mt19937_64 bits_;
};

}  // namespace hydrant::traffic
