// SPDX-License-Identifier: Apache-2.0
#include "eval/latency.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "eval/in_turn.h"

namespace hydrant::eval {
namespace {

double MillisecondsOf(const GenerationResult& result) { return 1000 * result.seconds(); }

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

}  // namespace

LatencyResult MeasureLatency(std::span<const LatencyMethod> methods, const GenerationRequest& request,
                             const LatencyOptions& options) {
  std::vector<DecodingWay> ways;
  for (const LatencyMethod& method : methods) {
    ways.push_back({method.name, [&request, &method] {
                      GenerationRequest own = request;
                      own.use_drafter = method.use_drafter;
                      return method.engine->Generate(own);
                    }});
  }
  const auto total = static_cast<double>(methods.size()) * (options.runs + 1);
  InTurnOptions in_turn{.must_be_equal = request.accept.rule == AcceptRule::kExact};
  in_turn.on_run = [&](int64_t runs) {
    return !options.on_progress || options.on_progress(static_cast<double>(runs) / total);
  };
  in_turn.wants_more = [&](int rounds) { return rounds < options.runs; };
  const std::vector<Round> rounds = RunInTurn(ways, in_turn);
  LatencyResult result{.rows = {}, .token_ids = {}, .rounds = static_cast<int>(rounds.size())};
  if (rounds.empty()) return result;
  result.token_ids = rounds.front().front().token_ids;
  std::vector<std::vector<GenerationResult>> runs(methods.size());
  for (const Round& round : rounds) {
    for (size_t m = 0; m < methods.size(); ++m) runs[m].push_back(round[m]);
  }
  for (const std::vector<GenerationResult>& own : runs) result.rows.push_back(RowOf(own, runs.front()));
  return result;
}

}  // namespace hydrant::eval
