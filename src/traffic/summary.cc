// SPDX-License-Identifier: Apache-2.0
#include "traffic/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hydrant::traffic {

double Percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

Summary Summarized(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = Percentile(values, 0.5),
          .p95 = Percentile(values, 0.95),
          .p99 = Percentile(values, 0.99),
          .min = values.front(),
          .max = values.back()};
}

// By hand: std::exponential_distribution may give other numbers with another standard library.
double PoissonGaps::Next() {
  const double uniform = static_cast<double>(bits_() >> 11) * 0x1.0p-53;  // [0, 1)
  return -std::log1p(-uniform) / rate_;
}

}  // namespace hydrant::traffic
