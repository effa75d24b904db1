// SPDX-License-Identifier: Apache-2.0
// How a token is drawn and when a reply ends, by name: flags of `run` and what `/set` of the chat changes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/flags/run_flags.h"
#include "hydrant/generation.h"

namespace hydrant::cli {

struct Setting {
  std::string_view name;  // "top-p": --top-p, /set top-p
  std::string_view kind;  // of its value, in help texts
  std::string_view help;
  // `flag` is for errors. Throws UserError and leaves the request as it is.
  void (*set)(std::string_view flag, const std::string& value, GenerationRequest& request);
  std::string (*get)(const GenerationRequest& request);
};
std::span<const Setting> SamplingSettings();
const Setting& MaxTokensSetting();
// Of the sampling settings, those that leave tokens out: they mean nothing at temperature 0.
bool IsFilter(std::string_view name);
// Is that filter set to a value that takes tokens away?
bool IsOn(std::string_view filter, const SamplingOptions& sampling);

// The temperature that is meant where somebody samples and names none: that of generation_config.json where it has one
// above 0, whatever `do_sample` says there, as transformers and vLLM do when they sample; else 1.
struct ModelTemperature {
  float value = 1;
  bool is_models_own = false;
};
ModelTemperature TemperatureOf(const std::string& model_folder);

// Settles what the flags left open, and says so in options.warnings: the temperature beside --top-k, --top-p or --min-p
// alone, and typical acceptance at temperature 0.
void SettleSampling(RunOptions& options);

}  // namespace hydrant::cli
