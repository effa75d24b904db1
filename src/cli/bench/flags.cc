// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/flags.h"

#include <fmt/core.h>

#include <array>

#include "base/json.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/terminal.h"
#include "eval/random_heads.h"

namespace hydrant::cli {

void AddBenchFlags(FlagSet& flags, BenchOptions& options, const std::string& what) {
  flags.Group("Measuring");
  flags.Value(
      "--threads", "N",
      [&options](const std::string& value) {
        options.threads = static_cast<int>(ParseInteger("--threads", value, 0, 1024));
      },
      "Threads; 0 = one for each core that this process may use (default 0)");
  flags.Text("--cpu-target", "NAME", &options.cpu_target, CpuTargetChoices() + " (default auto)");
  flags.Value(
      "--seconds", "X",
      [&options](const std::string& value) {
        options.seconds = ParseFloat("--seconds", value, {.min = 0, .max = 3600});
      },
      fmt::format("Time for {} (default {})", what, options.seconds));
  flags.Switch("--json", &options.json, "Print one JSON object");
}

std::span<const std::string_view> WeightFormatNames() {
  static constexpr std::array<std::string_view, 6> kNames = {"w4a8", "w8a8", "w4a16", "w8a16", "bf16", "f32"};
  return kNames;
}

std::vector<std::string> ParseHeadKinds(const std::string& text) {
  std::vector<std::string> kinds;
  for (const std::string& item : ListItems(text)) {
    kinds.push_back(ParseChoice("--heads", item, eval::RandomDrafterNames()));
  }
  return kinds;
}

void ChooseRandomFormats(EngineOptions& engine) {
  if (engine.weights == "auto") engine.weights = "w4a8";
  ParseChoice("--weights", engine.weights, WeightFormatNames());
  if (engine.head_weights == "auto") engine.head_weights = engine.weights;
  ParseChoice("--head-weights", engine.head_weights, WeightFormatNames());
}

std::unique_ptr<base::ThreadPool> BenchPool(const BenchOptions& options) {
  const std::string warning = base::TooManyThreads(options.threads);
  if (!warning.empty()) PrintWarnings({warning});
  auto pool = std::make_unique<base::ThreadPool>(options.threads > 0 ? options.threads : base::DefaultThreads(), true);
  pool->StopWhen(StopFlag());
  return pool;
}

base::Json DraftingJson(const GenerationRequest& request) {
  const LookupOptions& lookup = request.lookup;
  return {{"draft_p_min", ShortestDouble(request.draft_p_min)},
          {"draft_depth", request.draft_depth},
          {"dynamic",
           {{"nodes", request.dynamic.nodes}, {"depth", request.dynamic.depth}, {"width", request.dynamic.width}}},
          {"beam", {{"width", request.beam.width}, {"length", request.beam.length}}},
          {"lookup",
           {{"tokens", lookup.max_tokens},
            {"rule", NameOf(lookup.rule)},
            {"min_match", LeastMatch(lookup)},
            {"max_match", MostMatch(lookup)}}}};
}

void PutSpread(base::Json& json, const std::string& name, const eval::Spread& spread) {
  json[name] = spread.median;
  json[name + "_min"] = spread.min;
  json[name + "_max"] = spread.max;
}

}  // namespace hydrant::cli
