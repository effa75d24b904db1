// SPDX-License-Identifier: Apache-2.0
#include "cli/run/speed_figures.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "eval/spread.h"

namespace hydrant::cli {
namespace {

double Rate(double count, double milliseconds) { return milliseconds > 0 ? count * 1000 / milliseconds : 0; }

}  // namespace

double TokensPerSecond(const GenerationResult& result) {
  return Rate(static_cast<double>(result.token_ids.size()), result.seconds() * 1000);
}

double DecodeTokensPerSecond(const GenerationResult& result) {
  if (result.token_ids.size() < 2) return 0;
  return Rate(static_cast<double>(result.token_ids.size() - 1), result.seconds() * 1000 - result.phase_ms.prefill);
}

SpeedFigures MedianFigures(std::span<const GenerationResult> results) {
  const auto median = [&](const auto& figure) {
    std::vector<double> values;
    for (const GenerationResult& result : results) values.push_back(figure(result));
    return eval::SpreadOf(std::move(values)).median;
  };
  const auto per_step = [&](double PhaseTimes::*phase) {
    return median([&](const GenerationResult& result) {
      return result.phase_ms.*phase / static_cast<double>(std::max<size_t>(result.num_emitted.size(), 1));
    });
  };
  const GenerationResult& first = results.front();
  const auto steps = static_cast<double>(first.num_emitted.size());
  return {.tokens_per_step = first.tokens_per_step(),
          .tokens_per_second = median(TokensPerSecond),
          .draft_ms = per_step(&PhaseTimes::draft),
          .forward_ms = per_step(&PhaseTimes::forward),
          .drafted_per_step = static_cast<double>(first.num_drafted) / std::max(steps, 1.0)};
}

double SpeedupOfSteps(const SpeedFigures& drafted, const SpeedFigures& plain) {
  const double step_ms = drafted.forward_ms + drafted.draft_ms;
  return step_ms > 0 ? drafted.tokens_per_step * plain.forward_ms / step_ms : 0;
}

}  // namespace hydrant::cli
