// SPDX-License-Identifier: Apache-2.0
// What the `hydrant bench` commands share: flags, threads, JSON of a spread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/thread_pool.h"
#include "cli/flags.h"
#include "eval/spread.h"

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

std::unique_ptr<base::ThreadPool> BenchPool(const BenchOptions& options);

// json[name], json[name_min], json[name_max].
void PutSpread(base::Json& json, const std::string& name, const eval::Spread& spread);

}  // namespace hydrant::cli
