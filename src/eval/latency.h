// SPDX-License-Identifier: Apache-2.0
// The same prompt again and again, by several ways of decoding in turn: time, spread, and whether the texts are equal.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/spread.h"
#include "hydrant/engine.h"

namespace hydrant::eval {

// One way of decoding. Engines may be shared: plain decoding runs on the engine that holds heads, too.
struct LatencyMethod {
  std::string name;
  Engine* engine = nullptr;
  bool use_drafter = true;
};

struct LatencyRow {
  Spread ms;                        // of a whole generation, prompt included
  Spread tokens_per_second;         // over the same time
  Spread decode_tokens_per_second;  // without the prompt's forward and the token that it yields
  Spread speedup;                   // the first method's time over this one's, in the same round
  // Of the run with the median time.
  double tokens_per_step = 1, drafted_per_step = 0;
  TreeReport tree;
  PhaseTimes phase_ms;
  GenerationResult median_run;
  std::vector<double> runs_ms;
};
struct LatencyResult {
  std::vector<LatencyRow> rows;  // as the methods
  std::vector<int32_t> token_ids;
  int rounds = 0;
};

struct LatencyOptions {
  int runs = 10;
  std::function<bool(double share)> on_progress = {};  // after each generation; false: stop, with the rounds done
};

// One round untimed, then `runs` rounds; each starts with another method. Texts of the exact rule must be equal to the
// first method's, token for token: an InternalError says where they are not. Throws UserError as Engine::Generate does.
LatencyResult MeasureLatency(std::span<const LatencyMethod> methods, const GenerationRequest& request,
                             const LatencyOptions& options);

}  // namespace hydrant::eval
