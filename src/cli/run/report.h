// SPDX-License-Identifier: Apache-2.0
// What `hydrant run` tells about a generation: the JSON object, the statistics, the comparison with plain decoding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cli/flags/run_flags.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

// New tokens per second over all phases, the prompt's forward included.
double TokensPerSecond(const GenerationResult& result);
// The same without the prompt's forward and the first token, which it yields.
double DecodeTokensPerSecond(const GenerationResult& result);

// The object of `--json`: the result, and every setting that led to it.
base::Json RunJson(const RunOptions& options, const std::string& resolved_template, const EngineInfo& info,
                   std::span<const int32_t> prompt_ids, const GenerationResult& result);

// What weights are in memory, and what it took to convert them: a line for `--stats`.
std::string WeightsText(const EngineInfo& info);

// The lines of `--stats`.
std::string StatsText(std::span<const int32_t> prompt_ids, const GenerationResult& result);

// For a terminal: why the reply is no longer, where a limit ended it; else empty. `more` is how to get more tokens.
std::string LimitText(const GenerationResult& result, const EngineInfo& info, const std::string& more);

double Median(std::vector<double> values);

// Median figures of several runs of the same prompt.
struct SpeedFigures {
  double tokens_per_step = 0;
  double tokens_per_second = 0;
  double draft_ms = 0, forward_ms = 0;  // per step
  double drafted_per_step = 0;          // nodes
};
SpeedFigures MedianFigures(std::span<const GenerationResult> results);
// The speedup that drafting and the base model's steps leave when nothing else takes time; 0 where there were no steps.
double SpeedupOfSteps(const SpeedFigures& drafted, const SpeedFigures& plain);

struct TreeSpeed {
  std::string name, choices;  // as in EngineInfo
  int32_t nodes = 0;          // of the whole tree
  float p_min = 0;            // GenerationRequest::draft_p_min
  int32_t lookup = 0;         // LookupOptions::max_tokens
  SpeedFigures figures;
};
// One prompt decoded with heads and plainly in turn, the same text.
struct Comparison {
  std::vector<TreeSpeed> tried;        // what the tree was chosen from, in runs of their own; empty: no choice
  std::vector<TreeSpeed> tried_again;  // the fastest of many, in runs of their own again
  TreeSpeed drafted;
  double speedup = 0;  // tokens per second over those of plain decoding, in the same round; median over the rounds
  // Where `drafted` looks up and ways without were tried too: the fastest of those, in the same rounds.
  std::optional<TreeSpeed> heads_alone;
  double heads_alone_speedup = 0;
  SpeedFigures plain;
  size_t rounds = 0;
};
// A table of at most twelve rows, the fastest ways of each kind; what is left out is counted. Trees without a name have
// short ones; those that say less than the tree are explained below.
std::string ComparisonText(const EngineInfo& info, const Comparison& comparison, size_t num_tokens);

}  // namespace hydrant::cli
