// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run.h"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/flags/default_model.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/run_flags.h"
#include "cli/flags/sampling_settings.h"
#include "cli/flags/values.h"
#include "cli/run/acceptance.h"
#include "cli/run/chat_loop.h"
#include "cli/run/compare.h"
#include "cli/run/comparison_text.h"
#include "cli/run/prompt.h"
#include "cli/run/report.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/standard_input.h"
#include "cli/terminal/stream.h"
#include "cli/terminal/terminal.h"
#include "tokenizer/chat/chat_family.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::cli {
namespace {

Engine LoadEngine(RunOptions& options) {
  // Ids need no tokenizer: where there is none, `text` is null.
  options.engine.load_tokenizer = options.source != PromptSource::kIds || tokenizer::HasTokenizer(options.engine.model);
  options.engine.on_pack = PackProgress();
  options.engine.stop = StopFlag();
  Engine engine(options.engine);
  PrintWarnings(engine.info().warnings);
  PrintWarnings(options.warnings);
  return engine;
}

std::vector<int32_t> PromptIds(const Engine& engine, const RunOptions& options, const std::string& resolved_template) {
  if (options.source == PromptSource::kIds) return options.request.prompt_ids;
  std::string text = options.prompt, name = "--prompt";
  if (options.source == PromptSource::kFile) text = base::ReadTextFile(name = options.prompt, kMaxInputBytes);
  if (options.source == PromptSource::kStdin || options.source == PromptSource::kNone) {
    text = ReadStdin();
    name = "standard input";
  }
  CheckPromptText(name, text, resolved_template);
  return ConversationIds(engine, FirstMessages(options, text), resolved_template);
}

base::Json FiguresJson(const SpeedFigures& figures) {
  return {{"tokens_per_step", figures.tokens_per_step},
          {"tokens_per_second", figures.tokens_per_second},
          {"drafted_per_step", figures.drafted_per_step},
          {"draft_ms", figures.draft_ms},
          {"forward_ms", figures.forward_ms}};
}

base::Json TreeJson(const TreeSpeed& tree) {
  base::Json json = FiguresJson(tree.figures);
  json["name"] = tree.name;
  json["nodes"] = tree.nodes;
  json["draft_p_min"] = ShortestDouble(tree.p_min);
  json["lookup"] = tree.lookup;
  json["choices"] = base::ParseJson(tree.choices, "the tree");
  return json;
}

base::Json ComparisonJson(const Comparison& comparison) {
  base::Json json = {{"drafted", TreeJson(comparison.drafted)},
                     {"plain", FiguresJson(comparison.plain)},
                     {"speedup", comparison.speedup},
                     {"rounds", comparison.rounds},
                     {"tried", base::Json::array()},
                     {"tried_again", base::Json::array()}};
  if (comparison.heads_alone) {
    json["heads_alone"] = TreeJson(*comparison.heads_alone);
    json["heads_alone"]["speedup"] = comparison.heads_alone_speedup;
  }
  for (const TreeSpeed& tree : comparison.tried) json["tried"].push_back(TreeJson(tree));
  for (const TreeSpeed& tree : comparison.tried_again) json["tried_again"].push_back(TreeJson(tree));
  return json;
}

void PrintLowAcceptance(const GenerationResult& result) {
  if (const std::string low = LowAcceptance(result); !low.empty()) PrintWarnings({low});
}

void PrintText(Engine& engine, const RunOptions& options, const GenerationRequest& request, Choice choice) {
  const bool color = UseColor(options);
  const GenerationResult result = StreamReply(engine, request, color);
  if (!result.has_text) Print(base::DumpJson(result.token_ids) + "\n");
  if (result.has_text && (StdoutIsTerminal() || options.compare_plain)) Print("\n");
  if (StdoutIsTerminal() || StderrIsTerminal()) PrintError(LimitText(result, engine.info(), "--max-tokens N"));
  PrintLowAcceptance(result);
  if (color) PrintError(ColorLegend(static_cast<int32_t>(result.depth_offered.size())) + "\n");
  if (options.stats) PrintError(WeightsText(engine.info()) + StatsText(request.prompt_ids, result));
  if (!options.compare_plain || Interrupted()) return;
  const auto comparison = CompareWithPlain(engine, request, std::move(choice));
  if (comparison) Print("\n" + EscapedName(ComparisonText(engine.info(), *comparison, result.token_ids.size()), "\n"));
}

void PrintJson(Engine& engine, const RunOptions& options, const GenerationRequest& request,
               const std::string& resolved_template, Choice choice) {
  const GenerationResult result = GenerateSilently(engine, request);
  base::Json json = RunJson(options, resolved_template, engine.info(), request.prompt_ids, result);
  if (const std::string low = LowAcceptance(result); !low.empty()) json["warnings"].push_back(low);
  PrintLowAcceptance(result);
  if (options.compare_plain && !Interrupted()) {
    const auto comparison = CompareWithPlain(engine, request, std::move(choice));
    if (comparison) json["compare"] = ComparisonJson(*comparison);
  }
  Print(base::DumpJson(json) + "\n");
  if (options.stats) PrintError(WeightsText(engine.info()) + StatsText(request.prompt_ids, result));
}

}  // namespace

int Run(const std::vector<std::string>& args) {
  std::optional<RunOptions> parsed = ParseRunFlags(args);
  if (!parsed) return kExitOk;
  RunOptions& options = *parsed;
  const bool chat = options.source == PromptSource::kNone && StdinIsTerminal();
  if (chat && (options.json || options.compare_plain)) {
    throw UserError(fmt::format("{} needs a prompt", options.json ? "--json" : "--compare-plain"),
                    "give --prompt TEXT");
  }
  ChooseModel(options.engine);
  const std::string resolved_template = ChooseTemplate(options, chat);
  if (options.system && resolved_template == "none") {
    const auto family = tokenizer::FamilyOfFolders(options.engine.model, options.engine.draft);
    throw UserError(
        "--system needs a chat template, and this model has none",
        family ? fmt::format("{}: --template {}", family->said_by, family->template_name) : "name one with --template");
  }
  SettleSampling(options);
  Engine engine = LoadEngine(options);
  options.request.stop.eos_token_ids = engine.EndOfReply(resolved_template);
  if (chat) return RunChat(engine, options, resolved_template);
  GenerationRequest request = options.request;
  request.prompt_ids = PromptIds(engine, options, resolved_template);
  Choice choice = ChooseDrafting(engine, options, request);
  options.request.draft_p_min = request.draft_p_min;
  options.request.lookup = request.lookup;
  if (Interrupted()) return InterruptedExit();
  if (options.json) {
    PrintJson(engine, options, request, resolved_template, std::move(choice));
  } else {
    PrintText(engine, options, request, std::move(choice));
  }
  return Interrupted() ? InterruptedExit() : kExitOk;
}

}  // namespace hydrant::cli
