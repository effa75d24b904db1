// SPDX-License-Identifier: Apache-2.0
// For tests of distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace hydrant::sampling {

// Pearson's chi-square of counts against probabilities, as standard deviations above its mean (df, variance 2 df).
// Cells that expect fewer than 5 are one cell. Infinite where something impossible was counted.
inline double ChiSquareDeviation(std::span<const int64_t> counts, std::span<const double> probabilities) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  double chi = 0, rare_expected = 0, rare_counted = 0;
  int cells = 0;
  const auto add = [&](double counted, double expected) {
    chi += (counted - expected) * (counted - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(total);
    const auto counted = static_cast<double>(counts[i]);
    if (counted > 0 && !(expected > 0)) return std::numeric_limits<double>::infinity();
    if (expected >= 5) {
      add(counted, expected);
    } else {
      rare_expected += expected;
      rare_counted += counted;
    }
  }
  if (rare_expected >= 1) add(rare_counted, rare_expected);
  if (cells < 2) return 0;
  const double df = cells - 1;
  return (chi - df) / std::sqrt(2 * df);
}

}  // namespace hydrant::sampling
