// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/run_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/sampling_settings.h"
#include "cli/flags/values.h"
#include "tokenizer/chat/chat_template.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 2> kRules = {"exact", "typical"};
constexpr std::array<std::string_view, 2> kRoots = {"sampled", "argmax"};
constexpr std::array<std::string_view, 2> kCandidates = {"coupled", "plain"};
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

// Beside those that name a model and its heads.
void AddDraftingFlags(FlagSet& flags, RunOptions& options) {
  flags.Repeated(
      "--tree", "TREE", [&options](const std::string& value) { options.trees.push_back(value); },
      "Draft tree: auto (chosen while text is generated, by what steps take and give), a preset "
      "('hydrant tree list'), a JSON file or a list of paths (default auto; with --accept typical the heads' "
      "trees.json, else mc_sim_7b_63); with --compare-plain several may be given, and the fastest is used");
  AddTreeMemoryFlag(flags, options.engine);
  flags.Repeated(
      "--draft-p-min", "X",
      [&options](const std::string& value) {
        options.draft_p_mins.push_back(ParseFloat("--draft-p-min", value, {.min = 0, .max = 1}));
      },
      "Leave out drafted tokens whose probability is below X by their head (default 0: whole trees); several as with "
      "--tree");
  flags.Repeated(
      "--lookup", "N",
      [&options](const std::string& value) {
        options.lookups.push_back(static_cast<int32_t>(ParseInteger("--lookup", value, 0, 64)));
      },
      "Where the last tokens stood before in prompt or reply, draft up to N tokens (0 to 64) that followed them, with "
      "or "
      "without heads (default 0: never); several as with --tree");
  flags.Value(
      "--lookup-min", "N",
      [&options](const std::string& value) {
        options.request.lookup.min_match = static_cast<int32_t>(ParseInteger("--lookup-min", value, 1, 64));
      },
      "How many last tokens must have stood together before (default 3)");
}

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
  flags.Value(
      "--template", "NAME",
      [&options](const std::string& value) {
        const auto names = tokenizer::TemplateNames();
        std::vector<std::string_view> choices(names.begin(), names.end());
        choices.insert(choices.end(), {"none", "auto"});
        options.template_name = ParseChoice("--template", value, choices);
      },
      "Chat template by name; none: the text is continued as it is; auto: the model's own, else none (default auto)");
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

void AddAcceptFlags(FlagSet& flags, AcceptOptions& accept) {
  flags.Group("Acceptance of drafts");
  flags.Value(
      "--accept", "RULE",
      [&accept](const std::string& value) {
        accept.rule = ParseChoice("--accept", value, kRules) == "typical" ? AcceptRule::kTypical : AcceptRule::kExact;
      },
      "exact: the text is the model's own; typical: faster, and the text may differ (default exact)");
  flags.Value(
      "--epsilon", "X",
      [&accept](const std::string& value) { accept.epsilon = ParseFloat("--epsilon", value, {.min = 0, .max = 1}); },
      "Typical: a token of at least this probability is kept (default 0.09)");
  flags.Value(
      "--alpha", "X",
      [&accept](const std::string& value) { accept.alpha = ParseFloat("--alpha", value, {.min = 0, .max = 100}); },
      "Typical: or of X * exp(-entropy), whichever is less (default 0.3; sqrt(epsilon) beside --epsilon alone)");
  flags.Value(
      "--root", "HOW",
      [&accept](const std::string& value) {
        accept.root = ParseChoice("--root", value, kRoots) == "argmax" ? RootChoice::kArgmax : RootChoice::kSampled;
      },
      "Typical: the token after the kept ones is sampled or argmax, the most likely one (default sampled)");
  flags.Value(
      "--candidates", "HOW",
      [&accept](const std::string& value) {
        accept.candidates = ParseChoice("--candidates", value, kCandidates) == "plain" ? CandidateNoise::kPlain
                                                                                       : CandidateNoise::kCoupled;
      },
      "When sampling, drafted tokens are drawn with the model's own random numbers (coupled), or are the most likely "
      "ones "
      "(plain) (default coupled; plain under typical acceptance)");
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

void CheckAcceptance(const FlagSet& flags, RunOptions& options) {
  AcceptOptions& accept = options.request.accept;
  for (const char* flag : {"--epsilon", "--alpha", "--root"}) {
    if (flags.Given(flag) && accept.rule != AcceptRule::kTypical) {
      throw UserError(fmt::format("{} is for typical acceptance only", flag), "add --accept typical, or leave it out");
    }
  }
  if (flags.Given("--epsilon") && !flags.Given("--alpha")) accept.alpha = std::sqrt(accept.epsilon);
  if (options.engine.draft.empty() && !options.engine.model.empty()) {
    for (const char* flag : {"--tree", "--draft-p-min", "--head-weights"}) {
      if (flags.Given(flag)) throw UserError(fmt::format("{} needs draft heads", flag), "give --draft DIR");
    }
    if (options.compare_plain && !flags.Given("--lookup")) {
      throw UserError("--compare-plain needs drafts", "give --draft DIR, or --lookup N");
    }
  }
  if (flags.Given("--lookup-min") && !flags.Given("--lookup")) {
    throw UserError("--lookup-min is for lookups only", "add --lookup N, or leave it out");
  }
  const bool looks_up = std::ranges::any_of(options.lookups, [](int32_t tokens) { return tokens > 0; });
  if (looks_up && accept.rule == AcceptRule::kTypical) {
    throw UserError("--lookup is for the exact rule: typical acceptance would make the text depend on it",
                    "leave out --lookup or --accept typical");
  }
  if (options.compare_plain && accept.rule == AcceptRule::kTypical) {
    throw UserError("--compare-plain checks that both texts are equal, which typical acceptance does not promise",
                    "leave out --accept typical");
  }
}

void CheckModelAndOutput(const FlagSet& flags, const RunOptions& options) {
  CheckNotEmpty(flags, "--model", options.engine.model);
  CheckNotEmpty(flags, "--draft", options.engine.draft);
  for (const std::string& tree : options.trees) CheckNotEmpty(flags, "--tree", tree);
  CheckNotEmpty(flags, "--cpu-target", options.engine.cpu_target);
  CheckNotEmpty(flags, "--prompt-file", options.prompt);
  if (options.engine.model.empty() && !options.engine.draft.empty()) {
    throw UserError("--draft needs the base model that the heads belong to", "give --model DIR");
  }
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
  AddDraftingFlags(flags, options);
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
  CheckAcceptance(flags, options);
  if (flags.Given("--temperature")) options.temperature_from = "flag";
  for (const Setting& setting : SamplingSettings()) {
    const std::string flag = "--" + std::string(setting.name);
    if (IsFilter(setting.name) && IsOn(setting.name, options.request.sampling) && !flags.Given("--temperature") &&
        options.filter_alone.empty()) {
      options.filter_alone = flag;
    }
  }
  if (!options.trees.empty()) options.engine.tree = options.trees.front();
  if (!options.lookups.empty()) options.request.lookup.max_tokens = options.lookups.front();
  if (!options.draft_p_mins.empty()) options.request.draft_p_min = options.draft_p_mins.front();
  return options;
}

}  // namespace hydrant::cli
