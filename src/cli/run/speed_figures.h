// SPDX-License-Identifier: Apache-2.0
// How fast generations were.
#pragma once

#include <span>

#include "hydrant/generation.h"

namespace hydrant::cli {

// New tokens per second over all phases, the prompt's forward included.
double TokensPerSecond(const GenerationResult& result);
// The same without the prompt's forward and the first token, which it yields.
double DecodeTokensPerSecond(const GenerationResult& result);

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

}  // namespace hydrant::cli
