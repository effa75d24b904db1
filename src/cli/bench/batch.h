// SPDX-License-Identifier: Apache-2.0
// The command line of `hydrant bench batch`, and its result as JSON and text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cli/flags/run_flags.h"
#include "eval/batch.h"
#include "traffic/suite.h"

namespace hydrant::cli {

struct BatchCommand {
  RunOptions run;  // but its prompt; request: what all sequences have in common
  std::vector<int32_t> sequences = {1, 2, 4, 8, 16};
  std::string suite_file;  // empty: parts of one text
  traffic::Suite suite;    // what it holds
  bool ignores_eos = false;
  int32_t prompt_tokens = 32;
  int rounds = 3;
};

base::Json BatchJson(const BatchCommand& command, const EngineInfo& info, std::span<const eval::BatchMethod> methods,
                     const eval::BatchResult& result);
std::string BatchText(const BatchCommand& command, const EngineInfo& info, std::span<const eval::BatchMethod> methods,
                      const eval::BatchResult& result);

}  // namespace hydrant::cli
