// SPDX-License-Identifier: Apache-2.0
// `run --compare-plain`: which of several ways of drafting is the fastest for a prompt, and how it does beside plain
// decoding. All of it decodes the prompt again and again, silently.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/run_flags.h"
#include "cli/run/report.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

struct Drafting {
  std::string tree;  // as --tree takes it; empty: the default
  float p_min = 0;
  int32_t lookup = 0;

  void Use(const Engine& engine, GenerationRequest& request) const;
};

// The way of drafting to use, and what it was chosen from.
struct Choice {
  std::vector<TreeSpeed> tried;        // empty where there was no choice, or it was interrupted
  std::vector<TreeSpeed> tried_again;  // the fastest of them, in later runs; empty where they were few
  Drafting fastest;
  std::optional<Drafting> heads_alone;  // the fastest without lookup, where `fastest` has heads and looks up
};

// Tries every tree with every smallest probability and every longest lookup of the options, if they are several, and
// leaves the fastest in use. Throws InternalError where two texts differ.
Choice ChooseDrafting(Engine& engine, const RunOptions& options, GenerationRequest& request);

// The way in use beside plain decoding, in runs of their own: those that it was chosen by favour it. Beside a lookup
// also the best way without. Nothing when interrupted. Throws likewise.
std::optional<Comparison> CompareWithPlain(Engine& engine, GenerationRequest request, Choice choice);

}  // namespace hydrant::cli
