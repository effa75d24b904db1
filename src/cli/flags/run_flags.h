// SPDX-License-Identifier: Apache-2.0
// The command line of `hydrant run`, read and checked before any file is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hydrant/engine.h"

namespace hydrant::cli {

enum class PromptSource : uint8_t { kText, kFile, kIds, kStdin, kNone };  // kNone: stdin, or a chat in a terminal
enum class ColorMode : uint8_t { kAuto, kAlways, kNever };

struct RunOptions {
  EngineOptions engine;
  GenerationRequest request;  // prompt_ids only from --prompt-ids
  PromptSource source = PromptSource::kNone;
  std::string prompt;  // text, or the path of --prompt-file
  std::optional<std::string> system;
  std::string template_name = "auto";        // a template's name, "none" or "auto"
  std::string filter_alone;                  // the first of --top-k, --top-p, --min-p where there is no --temperature
  std::string temperature_from = "default";  // or "flag", "generation_config.json", "filter": 1 beside a filter alone
  ColorMode color = ColorMode::kAuto;
  bool json = false;
  bool stats = false;
  bool show_drafts = false;
  bool compare_plain = false;
  std::vector<std::string> trees;   // of --tree; the first one, if any, is engine.tree too
  std::vector<float> draft_p_mins;  // of --draft-p-min; the first one, if any, is request.draft_p_min too
  std::vector<int32_t> lookups;     // of --lookup; the first one, if any, is request.lookup.max_tokens too

  std::vector<std::string> warnings;  // beside the engine's; found after the flags

  // Whether there are several ways of drafting to choose from.
  bool has_choice() const { return trees.size() > 1 || draft_p_mins.size() > 1 || lookups.size() > 1; }
};

// Nothing when help was asked for and has been printed. Throws UserError.
std::optional<RunOptions> ParseRunFlags(const std::vector<std::string>& args);

}  // namespace hydrant::cli
