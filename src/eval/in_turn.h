// SPDX-License-Identifier: Apache-2.0
// Several ways of decoding one prompt in turn, so that what disturbs the machine meets all of them, and so that their
// texts can be compared.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hydrant/generation.h"

namespace hydrant::eval {

struct DecodingWay {
  std::string name;
  std::function<GenerationResult()> run;
};

// One run of each way.
using Round = std::vector<GenerationResult>;

struct InTurnOptions {
  bool must_be_equal = true;  // texts; false where a rule of acceptance may change them
  // After each run; `runs` counts them all. False: stop; a round that is not whole does not count.
  std::function<bool(int64_t runs)> on_run = {};
  // After `rounds` timed rounds: is another one wanted?
  std::function<bool(int rounds)> wants_more = {};
};

// One round untimed, then timed ones, which are returned; each starts with another way. Also ends where a run was
// cancelled. Throws InternalError where a text differs from the first way's.
std::vector<Round> RunInTurn(std::span<const DecodingWay> ways, const InTurnOptions& options);

}  // namespace hydrant::eval
