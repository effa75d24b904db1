// SPDX-License-Identifier: Apache-2.0
// `run --compare-plain`: which of several ways of drafting is the fastest for a prompt, and how it does beside plain
// decoding. All of it decodes the prompt again and again, silently.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/run_flags.h"
#include "cli/run/speed_figures.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

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
