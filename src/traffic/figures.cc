// SPDX-License-Identifier: Apache-2.0
#include "traffic/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace hydrant::traffic {

std::string KindOf(const Reply& reply) {
  switch (reply.failure) {
    case Failure::kNone: break;
    case Failure::kConnect: return "connection";
    case Failure::kTls: return "TLS";
    case Failure::kTimeout: return "timeout";
    case Failure::kCut: return "cut stream";
    case Failure::kStatus: return fmt::format("status {}", reply.status);
    case Failure::kMalformed: return "not the API's form";
    case Failure::kError: return "error in the stream";
  }
  return "none";
}

Figures FiguresOf(std::span<const LoadResult> runs) {
  Figures figures;
  std::vector<double> first_token, per_token, between, whole;
  int64_t steps = 0;
  double step_tokens = 0;
  for (const LoadResult& run : runs) {
    figures.seconds += run.seconds;
    figures.num_dropped += run.num_dropped;
    figures.cpu_share = std::max(figures.cpu_share, run.cpu_share);
    for (const Reply& reply : run.replies) {
      if (reply.failure != Failure::kNone) {
        ++figures.num_failed;
        ++figures.errors[KindOf(reply)];
        if (figures.first_problem.empty()) figures.first_problem = KindOf(reply) + ": " + reply.problem;
        continue;
      }
      ++figures.num_replies;
      figures.num_tokens += reply.num_tokens;
      figures.num_prompt_tokens += reply.num_prompt_tokens;
      figures.has_usage = figures.has_usage && reply.has_usage;
      steps += reply.num_steps;
      step_tokens += reply.num_step_tokens;
      whole.push_back(1000 * (reply.end - reply.start));
      if (reply.num_events == 0) continue;
      first_token.push_back(1000 * (reply.first - reply.start));
      for (const double gap : reply.gaps) between.push_back(1000 * gap);
      if (reply.num_tokens > 1) {
        per_token.push_back(1000 * (reply.last - reply.first) / static_cast<double>(reply.num_tokens - 1));
      }
    }
  }
  if (steps > 0) figures.tokens_per_step = step_tokens / static_cast<double>(steps);
  figures.first_token = Summarized(std::move(first_token));
  figures.per_token = Summarized(std::move(per_token));
  figures.between = Summarized(std::move(between));
  figures.whole = Summarized(std::move(whole));
  return figures;
}

void TextComparison::Add(const std::string& way, const LoadResult& run) {
  for (const Reply& reply : run.replies) {
    if (reply.failure != Failure::kNone) continue;
    const auto [known, is_new] = known_.try_emplace({reply.index, reply.turn}, Known{reply.text, way});
    if (is_new) continue;
    ++num_compared_;
    const std::string& expected = known->second.text;
    if (expected == reply.text) continue;
    ++num_different_;
    if (!first_.empty()) continue;
    const auto at = std::ranges::mismatch(expected, reply.text).in1 - expected.begin();
    first_ = fmt::format("prompt {}, turn {}: {} differs from {} at byte {}", reply.index + 1, reply.turn + 1, way,
                         known->second.way, at);
  }
}

}  // namespace hydrant::traffic
