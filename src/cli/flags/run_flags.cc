// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/run_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/flags/drafting_flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/sampling_settings.h"
#include "cli/flags/values.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 3> kColors = {"auto", "always", "never"};

constexpr const char* kDescription =
    "Generate text from a prompt, or chat: without a prompt in a terminal. With --draft the same text comes faster: "
    "small heads guess the next tokens, and the model keeps those that it would have written itself. The prompt may "
    "also come from a pipe.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant run --prompt 'Once upon a time'                     the embedded model with its heads\n"
    "  hydrant run --model vicuna-7b --draft hydra-vicuna-7b --prompt 'Name three rivers.' --show-drafts\n"
    "  hydrant run --model M --draft D --temperature 0.8 --top-p 0.9 --seed 7 --prompt-file p.txt\n"
    "  hydrant run --model M --draft D --tree '[[0],[0,0],[1]]' --prompt 'A poem.' --compare-plain\n"
    "  hydrant run --model M --draft D --accept typical --temperature 0.7 --prompt 'A poem.'\n"
    "  hydrant run --model M --lookup 8 --prompt-file report.txt   guesses from the text itself, no heads\n"
    "  hydrant run --model M --prompt-ids '[1, 306, 626]' --json\n"
    "  hydrant run --model M --draft D                             chat; /help lists what can be typed\n";

void AddPromptFlags(FlagSet& flags, RunOptions& options) {
  flags.Group("Prompt");
  flags.Text("--prompt", "TEXT", &options.prompt, "The prompt; one user message under a chat template");
  flags.Text("--prompt-file", "FILE", &options.prompt,
             "The prompt from a file, to the byte (at most 64 MB); - = standard input");
  flags.Value(
      "--prompt-ids", "LIST|FILE",
      [&options](const std::string& value) { options.request.prompt_ids = ParseIdList("--prompt-ids", value, true); },
      "Token ids such as 1,2 or [1, 2], used exactly as given: no BOS, no template");
  flags.Value(
      "--system", "TEXT", [&options](const std::string& value) { options.system = value; },
      "System message of the chat template");
  AddTemplateFlag(flags, options);
}

void AddSetting(FlagSet& flags, const Setting& setting, GenerationRequest& request) {
  const std::string flag = "--" + std::string(setting.name);
  flags.Value(
      flag, std::string(setting.kind),
      [&setting, &request, flag](const std::string& value) { setting.set(flag, value, request); },
      std::string(setting.help));
}

void AddStopFlags(FlagSet& flags, GenerationRequest& request) {
  StopOptions& stop = request.stop;
  flags.Group("Stopping");
  AddSetting(flags, MaxTokensSetting(), request);
  flags.Repeated(
      "--stop", "TEXT",
      [&stop](const std::string& value) {
        if (value.empty()) throw UserError("--stop is empty, expected the text to stop at");
        stop.stop.push_back(value);
      },
      "Stop at this text and leave it out; may be given several times");
  flags.Switch("--ignore-eos", &stop.ignore_eos, "Go on after an end-of-sequence token");
}

void AddOutputFlags(FlagSet& flags, RunOptions& options) {
  flags.Group("Output");
  flags.Switch("--json", &options.json, "Print one JSON object instead of the text");
  flags.Switch("--stats", &options.stats, "Afterwards print tokens per step, accepted drafts and times to stderr");
  flags.Switch("--show-drafts", &options.show_drafts, "In a terminal, colour each accepted token by its depth");
  flags.Value(
      "--color", "WHEN",
      [&options](const std::string& value) {
        const std::string mode = ParseChoice("--color", value, kColors);
        options.color = mode == "always" ? ColorMode::kAlways : mode == "never" ? ColorMode::kNever : ColorMode::kAuto;
      },
      "auto, always or never (default auto)");
  flags.Switch(
      "--compare-plain", &options.compare_plain,
      "Also generate without drafts, several times in turn; check that the text is the same and print both speeds");
}

void CheckPrompt(const FlagSet& flags, RunOptions& options) {
  const char* given = nullptr;
  const auto source = [&](const char* flag, PromptSource kind) {
    if (!flags.Given(flag)) return;
    if (given != nullptr) throw UserError(fmt::format("{} and {} are both given, expected one prompt", given, flag));
    given = flag;
    options.source = kind;
  };
  source("--prompt", PromptSource::kText);
  source("--prompt-file", PromptSource::kFile);
  source("--prompt-ids", PromptSource::kIds);
  if (options.source == PromptSource::kFile && options.prompt == "-") options.source = PromptSource::kStdin;
  const bool ids = options.source == PromptSource::kIds;
  if (ids && options.template_name != "auto" && options.template_name != "none") {
    throw UserError("--template cannot be used with --prompt-ids: ids are used exactly as given");
  }
  if (ids && options.system)
    throw UserError("--system cannot be used with --prompt-ids: ids are used exactly as given");
  if (options.system && options.template_name == "none") {
    throw UserError("--system needs a chat template, and --template is none");
  }
}

void CheckModelAndOutput(const FlagSet& flags, const RunOptions& options) {
  CheckNotEmpty(flags, "--model", options.engine.model);
  for (const std::string& tree : options.trees) CheckNotEmpty(flags, "--tree", tree);
  CheckNotEmpty(flags, "--cpu-target", options.engine.cpu_target);
  CheckNotEmpty(flags, "--prompt-file", options.prompt);
  CheckDraftHasModel(options.engine);
  if (options.has_choice() && !options.compare_plain) {
    throw UserError(fmt::format("{} is given several times, and only a comparison takes them in turn",
                                options.trees.size() > 1          ? "--tree"
                                : options.draft_p_mins.size() > 1 ? "--draft-p-min"
                                                                  : "--lookup"),
                    "add --compare-plain");
  }
  if (options.json && options.show_drafts) throw UserError("--show-drafts and --json cannot be used together");
  if (flags.Given("--color") && !options.show_drafts) throw UserError("--color is for --show-drafts only");
}

}  // namespace

std::optional<RunOptions> ParseRunFlags(const std::vector<std::string>& args) {
  RunOptions options;
  FlagSet flags("hydrant run", kDescription, kExamples);
  flags.Group("Weights and drafts");
  AddModelFlags(flags, options.engine);
  AddDraftingFlags(flags, options,
                   {.tree = "; with --accept typical the heads' trees.json, else mc_sim_7b_63; with --compare-plain "
                            "several may be given, and the fastest is used",
                    .other = "; several as with --tree"});
  AddPromptFlags(flags, options);
  flags.Group("Sampling");
  for (const Setting& setting : SamplingSettings()) AddSetting(flags, setting, options.request);
  AddStopFlags(flags, options.request);
  AddAcceptFlags(flags, options.request.accept);
  AddOutputFlags(flags, options);
  flags.Group("Machine");
  AddMachineFlags(flags, options.engine);
  AddKvMemoryFlag(flags, options.engine);
  flags.First("Most used", {"--model", "--draft", "--prompt", "--template", "--max-tokens", "--temperature"});
  if (!flags.Parse(args)) return std::nullopt;
  CheckPrompt(flags, options);
  CheckModelAndOutput(flags, options);
  CheckDrafting(flags, options);
  CheckAcceptance(flags, options);
  if (flags.Given("--temperature")) options.temperature_from = "flag";
  for (const Setting& setting : SamplingSettings()) {
    const std::string flag = "--" + std::string(setting.name);
    if (IsFilter(setting.name) && IsOn(setting.name, options.request.sampling) && !flags.Given("--temperature") &&
        options.filter_alone.empty()) {
      options.filter_alone = flag;
    }
  }
  return options;
}

}  // namespace hydrant::cli
