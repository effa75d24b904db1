// SPDX-License-Identifier: Apache-2.0
// What the `hydrant bench` commands share: flags, threads, JSON of a spread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/thread_pool.h"
#include "cli/flags/flags.h"
#include "eval/spread.h"
#include "hydrant/engine.h"

namespace hydrant::cli {

struct BenchOptions {
  int threads = 0;
  std::string cpu_target = "auto";
  double seconds = 0;
  bool json = false;
};

// --threads, --cpu-target, --seconds, --json. `seconds` in `options` is the default; `what` it is spent on.
void AddBenchFlags(FlagSet& flags, BenchOptions& options, const std::string& what);

// Formats that random weights can be made in.
std::span<const std::string_view> WeightFormatNames();

// "medusa,hydra++": kinds of random heads.
std::vector<std::string> ParseHeadKinds(const std::string& text);

// Formats of random weights where none is named: 4 bits, and the heads as the base. Throws UserError for "stored".
void ChooseRandomFormats(EngineOptions& engine);

std::unique_ptr<base::ThreadPool> BenchPool(const BenchOptions& options);

// What a request says of drafting, but its tree. docs/commands.md has the fields.
base::Json DraftingJson(const GenerationRequest& request);

// json[name], json[name_min], json[name_max].
void PutSpread(base::Json& json, const std::string& name, const eval::Spread& spread);

}  // namespace hydrant::cli
