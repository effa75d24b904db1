// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/sampling_settings.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <limits>
#include <string_view>

#include "base/json.h"
#include "cli/flags/values.h"

namespace hydrant::cli {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr FloatRange kTemperatures = {.min = 0, .max = 100};
constexpr FloatRange kTopPs = {.min = 0, .max = 1, .open_below = true};
constexpr FloatRange kMinPs = {.min = 0, .max = 1};
constexpr FloatRange kRepetitions = {.min = 0.001, .max = 1000};
constexpr FloatRange kPenalties = {.min = -100, .max = 100};

template <float SamplingOptions::*kTarget, const FloatRange& kRange>
constexpr Setting Number(std::string_view name, std::string_view help) {
  return {
      name, "X", help,
      [](std::string_view flag, const std::string& value, GenerationRequest& request) {
        request.sampling.*kTarget = ParseFloat(flag, value, kRange);
      },
      [](const GenerationRequest& request) { return fmt::format("{}", ShortestDouble(request.sampling.*kTarget)); }};
}

constexpr Setting kTopK = {"top-k", "N", "Keep the N most likely tokens; 0 = off (default 0)",
                           [](std::string_view flag, const std::string& value, GenerationRequest& request) {
                             request.sampling.top_k = static_cast<int32_t>(ParseInteger(flag, value, 0, kMaxInt32));
                           },
                           [](const GenerationRequest& request) { return std::to_string(request.sampling.top_k); }};

constexpr Setting kSeed = {"seed", "N",
                           "0 to 2^64-1; the same seed gives the same text, with any heads and tree (default 0)",
                           [](std::string_view flag, const std::string& value, GenerationRequest& request) {
                             request.sampling.seed = ParseSeed(flag, value);
                           },
                           [](const GenerationRequest& request) { return std::to_string(request.sampling.seed); }};

constexpr Setting kMaxTokens = {
    "max-tokens", "N", "Most new tokens (default 256)",
    [](std::string_view flag, const std::string& value, GenerationRequest& request) {
      request.stop.max_tokens = static_cast<int32_t>(ParseInteger(flag, value, 1, kMaxInt32));
    },
    [](const GenerationRequest& request) { return std::to_string(request.stop.max_tokens); }};

constexpr std::array kSettings = {
    Number<&SamplingOptions::temperature, kTemperatures>(
        "temperature",
        "0: the most likely token each time; above 0: sampled (default 0; with --top-k, --top-p or --min-p that of the "
        "model's generation_config.json, else 1)"),
    kTopK,
    Number<&SamplingOptions::top_p, kTopPs>(
        "top-p", "Keep the most likely tokens that reach this probability; 1 = off (default 1)"),
    Number<&SamplingOptions::min_p, kMinPs>(
        "min-p", "Keep tokens of at least X times the largest probability; 0 = off (default 0)"),
    Number<&SamplingOptions::repetition_penalty, kRepetitions>("repetition-penalty",
                                                               "Over prompt and output; 1 = off (default 1)"),
    Number<&SamplingOptions::presence_penalty, kPenalties>("presence-penalty", "Over the output (default 0)"),
    Number<&SamplingOptions::frequency_penalty, kPenalties>("frequency-penalty", "Over the output (default 0)"),
    kSeed,
};

}  // namespace

std::span<const Setting> SamplingSettings() { return kSettings; }
const Setting& MaxTokensSetting() { return kMaxTokens; }
bool IsFilter(std::string_view name) { return name == "top-k" || name == "top-p" || name == "min-p"; }
bool IsOn(std::string_view filter, const SamplingOptions& sampling) {
  if (filter == "top-k") return sampling.top_k > 0;
  return filter == "top-p" ? sampling.top_p < 1 : sampling.min_p > 0;
}

ModelTemperature TemperatureOf(const std::string& model_folder) {
  const std::string file = (std::filesystem::path(model_folder) / "generation_config.json").string();
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  const base::Json json = base::ReadJsonFile(file);
  const base::JsonView root(json, file);
  if (!root.Has("temperature")) return {};
  const double value = root.At("temperature").Number();
  if (value < 0 || value > kTemperatures.max) root.At("temperature").Fail("a number from 0 to 100");
  if (static_cast<float>(value) <= 0) return {};
  return {.value = static_cast<float>(value), .is_models_own = true};
}

void SettleSampling(RunOptions& options) {
  SamplingOptions& sampling = options.request.sampling;
  if (!options.filter_alone.empty()) {
    const ModelTemperature own = TemperatureOf(options.engine.model);
    sampling.temperature = own.value;
    options.temperature_from = own.is_models_own ? "generation_config.json" : "filter";
    options.warnings.push_back(fmt::format("{} is given without --temperature: sampling at temperature {}{}",
                                           options.filter_alone, ShortestDouble(own.value),
                                           own.is_models_own ? ", that of the model's generation_config.json" : ""));
  }
  if (options.request.accept.rule == AcceptRule::kTypical && sampling.temperature <= 0) {
    options.warnings.emplace_back(
        "--accept typical at temperature 0 is the exact rule: the text is the greedy one; --temperature 0.7 makes it "
        "typical acceptance");
  }
}

}  // namespace hydrant::cli
