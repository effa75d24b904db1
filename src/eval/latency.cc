// SPDX-License-Identifier: Apache-2.0
#include "eval/latency.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "hydrant/error.h"

namespace hydrant::eval {
namespace {

double MillisecondsOf(const GenerationResult& result) { return 1000 * result.seconds(); }

void CheckEqual(const LatencyMethod& first, const std::vector<int32_t>& expected, const LatencyMethod& method,
                const std::vector<int32_t>& found) {
  if (expected == found) return;
  const auto [a, b] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  throw InternalError(method.name + " differs from " + first.name + " at token " + std::to_string(a - expected.begin()),
                      "this is a bug in hydrant; please report it with the command that led here");
}

LatencyRow RowOf(const std::vector<GenerationResult>& runs, const std::vector<GenerationResult>& first) {
  LatencyRow row;
  std::vector<double> rates, decode_rates, speedups;
  for (size_t i = 0; i < runs.size(); ++i) {
    const double ms = MillisecondsOf(runs[i]), decode_ms = ms - runs[i].phase_ms.prefill;
    const auto tokens = static_cast<double>(runs[i].token_ids.size());
    row.runs_ms.push_back(ms);
    rates.push_back(1000 * tokens / ms);
    if (tokens > 1 && decode_ms > 0) decode_rates.push_back(1000 * (tokens - 1) / decode_ms);
    speedups.push_back(MillisecondsOf(first[i]) / ms);
  }
  row.ms = SpreadOf(row.runs_ms);
  row.tokens_per_second = SpreadOf(std::move(rates));
  row.decode_tokens_per_second = SpreadOf(std::move(decode_rates));
  row.speedup = SpreadOf(std::move(speedups));
  const auto nearest = std::min_element(row.runs_ms.begin(), row.runs_ms.end(), [&row](double a, double b) {
    return std::abs(a - row.ms.median) < std::abs(b - row.ms.median);
  });
  const GenerationResult& middle = runs[static_cast<size_t>(nearest - row.runs_ms.begin())];
  row.tokens_per_step = middle.tokens_per_step();
  row.drafted_per_step =
      static_cast<double>(middle.num_drafted) / static_cast<double>(std::max<size_t>(middle.num_emitted.size(), 1));
  row.tree = middle.tree;
  row.phase_ms = middle.phase_ms;
  row.median_run = middle;
  return row;
}

LatencyResult WithRows(LatencyResult result, const std::vector<std::vector<GenerationResult>>& runs) {
  if (result.rounds == 0) return result;
  for (const std::vector<GenerationResult>& method : runs) result.rows.push_back(RowOf(method, runs.front()));
  return result;
}

}  // namespace

LatencyResult MeasureLatency(std::span<const LatencyMethod> methods, const GenerationRequest& request,
                             const LatencyOptions& options) {
  const bool exact = request.accept.rule == AcceptRule::kExact;
  std::vector<std::vector<GenerationResult>> runs(methods.size());
  LatencyResult result;
  const auto total = static_cast<double>(methods.size()) * (options.runs + 1);
  double done = 0;
  bool go_on = true;
  for (int round = 0; go_on && round <= options.runs; ++round) {
    std::vector<GenerationResult> generations(methods.size());
    for (size_t i = 0; go_on && i < methods.size(); ++i) {
      const size_t m = (i + static_cast<size_t>(round)) % methods.size();
      GenerationRequest own = request;
      own.use_drafter = methods[m].use_drafter;
      generations[m] = methods[m].engine->Generate(own);
      ++done;
      go_on = generations[m].finish_reason != FinishReason::kCancelled;
      if (!go_on) return WithRows(std::move(result), runs);  // it is not whole
      go_on = !options.on_progress || options.on_progress(done / total);
    }
    if (!go_on && done < total) break;
    if (round == 0) result.token_ids = generations.front().token_ids;
    for (size_t m = 0; m < methods.size(); ++m) {
      if (exact) CheckEqual(methods.front(), result.token_ids, methods[m], generations[m].token_ids);
      if (round > 0) runs[m].push_back(std::move(generations[m]));
    }
    result.rounds = round;
  }
  return WithRows(std::move(result), runs);
}

}  // namespace hydrant::eval
