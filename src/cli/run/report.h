// SPDX-License-Identifier: Apache-2.0
// What `hydrant run` tells about a generation: the JSON object and the statistics.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cli/flags/run_flags.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

// The object of `--json`: the result, and every setting that led to it.
base::Json RunJson(const RunOptions& options, const std::string& resolved_template, const EngineInfo& info,
                   std::span<const int32_t> prompt_ids, const GenerationResult& result);

// What weights are in memory, and what it took to convert them: a line for `--stats`.
std::string WeightsText(const EngineInfo& info);

// The lines of `--stats`.
std::string StatsText(std::span<const int32_t> prompt_ids, const GenerationResult& result);

// For a terminal: why the reply is no longer, where a limit ended it; else empty. `more` is how to get more tokens.
std::string LimitText(const GenerationResult& result, const EngineInfo& info, const std::string& more);

}  // namespace hydrant::cli
