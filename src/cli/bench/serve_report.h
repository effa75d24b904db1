// SPDX-License-Identifier: Apache-2.0
// What `hydrant bench serve` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cli/bench/serve_options.h"
#include "eval/spread.h"
#include "traffic/figures.h"
#include "traffic/load.h"
#include "traffic/suite.h"

namespace hydrant::cli {

// Of one way, all rounds.
struct ServeWayResult {
  ServeWay way;
  std::vector<traffic::LoadResult> runs;
  traffic::Figures figures;
  eval::Spread tokens_per_second, replies_per_second;  // of the rounds
};

// With drafts over plain, both above 1 where drafts are faster: of each round, then the median, least and most.
struct PlainComparison {
  std::string name;  // of the way with drafts
  size_t rounds = 0;
  eval::Spread throughput;  // tokens/s
  eval::Spread per_token;   // medians of the time per token
};

struct BenchServeResult {
  std::vector<ServeWayResult> ways;
  std::vector<PlainComparison> comparisons;
  int64_t num_compared = 0, num_different = 0;  // texts
  std::string first_difference;
  std::vector<std::string> warnings;
};

// Sums up what `runs` of each way have; a run that was stopped counts in the figures and in no comparison.
BenchServeResult SummedUp(const BenchServeOptions& options, std::vector<std::vector<traffic::LoadResult>> runs,
                          const traffic::TextComparison& texts);

std::string BenchServeText(const BenchServeOptions& options, const traffic::Suite& suite,
                           const BenchServeResult& result);
base::Json BenchServeJson(const BenchServeOptions& options, const traffic::Suite& suite,
                          const BenchServeResult& result);

}  // namespace hydrant::cli
