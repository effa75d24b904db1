// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/mapped_file.h"
#include "cli/chat_loop.h"
#include "cli/default_model.h"
#include "cli/engine_flags.h"
#include "cli/errors.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/run_flags.h"
#include "cli/stream.h"
#include "cli/terminal.h"
#include "cli/values.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::cli {
namespace {

constexpr int kComparisonRuns = 3;

void ChooseModel(RunOptions& options) {
  if (!options.engine.model.empty()) {
    CheckFolders(options.engine);
    return;
  }
  const DefaultModel found = FindDefaultModel();
  options.engine.model = found.model;
  options.engine.draft = found.draft;
  PrintError(fmt::format("No --model given: using {} with {}\n", found.model, found.draft));
}

Engine LoadEngine(RunOptions& options) {
  // Ids need no tokenizer: where there is none, `text` is null.
  options.engine.load_tokenizer = options.source != PromptSource::kIds || tokenizer::HasTokenizer(options.engine.model);
  options.engine.on_pack = PackProgress();
  Engine engine(options.engine);
  for (const std::string& warning : engine.info().warnings) PrintError(fmt::format("warning: {}\n", warning));
  return engine;
}

std::vector<int32_t> PromptIds(const Engine& engine, const RunOptions& options, const std::string& resolved_template) {
  if (options.source == PromptSource::kIds) return options.request.prompt_ids;
  std::string text = options.prompt;
  if (options.source == PromptSource::kFile) text = base::ReadTextFile(options.prompt, kMaxInputBytes);
  if (options.source == PromptSource::kNone) text = ReadStdin();
  return ConversationIds(engine, FirstMessages(options, text), resolved_template);
}

// Nothing is printed: a callback only so that Ctrl-C works.
GenerationResult GenerateSilently(Engine& engine, const GenerationRequest& request) {
  return engine.Generate(request, [](const Emission&) { return !Interrupted(); });
}

struct Comparison {
  SpeedFigures drafted, plain;
};

// Alternating, after one untimed run of each. Unequal tokens are our mistake, not the user's.
Comparison CompareWithPlain(Engine& engine, const GenerationRequest& request) {
  GenerationRequest plain_request = request;
  plain_request.use_drafter = false;
  std::vector<GenerationResult> drafted, plain;
  for (int i = 0; i <= kComparisonRuns && !Interrupted(); ++i) {
    GenerationResult with_heads = GenerateSilently(engine, request);
    GenerationResult without = GenerateSilently(engine, plain_request);
    if (Interrupted()) break;
    if (with_heads.token_ids != without.token_ids) {
      const auto [a, b] = std::mismatch(with_heads.token_ids.begin(), with_heads.token_ids.end(),
                                        without.token_ids.begin(), without.token_ids.end());
      throw InternalError(
          fmt::format("decoding with heads differs from plain decoding at token {}", a - with_heads.token_ids.begin()),
          "this is a bug in hydrant; please report it with the command that led here");
    }
    if (i == 0) continue;
    drafted.push_back(std::move(with_heads));
    plain.push_back(std::move(without));
  }
  if (drafted.empty()) return {};
  return {MedianFigures(drafted), MedianFigures(plain)};
}

base::Json FiguresJson(const SpeedFigures& figures) {
  return {{"tokens_per_step", figures.tokens_per_step},
          {"tokens_per_second", figures.tokens_per_second},
          {"draft_ms", figures.draft_ms},
          {"forward_ms", figures.forward_ms}};
}

void PrintText(Engine& engine, const RunOptions& options, const GenerationRequest& request) {
  const bool color = UseColor(options);
  const GenerationResult result = StreamReply(engine, request, color);
  if (!result.has_text) Print(base::DumpJson(result.token_ids) + "\n");
  if (result.has_text && (StdoutIsTerminal() || options.compare_plain)) Print("\n");
  if (color) PrintError(ColorLegend(static_cast<int32_t>(result.depth_offered.size())) + "\n");
  if (options.stats) PrintError(WeightsText(engine.info()) + StatsText(request.prompt_ids, result));
  if (!options.compare_plain || Interrupted()) return;
  const Comparison comparison = CompareWithPlain(engine, request);
  if (Interrupted()) return;
  Print(fmt::format("\n{}",
                    ComparisonText(engine.info(), comparison.drafted, comparison.plain, result.token_ids.size())));
}

void PrintJson(Engine& engine, const RunOptions& options, const GenerationRequest& request,
               const std::string& resolved_template) {
  const GenerationResult result = GenerateSilently(engine, request);
  base::Json json = RunJson(options, resolved_template, engine.info(), request.prompt_ids, result);
  if (options.compare_plain && !Interrupted()) {
    const Comparison comparison = CompareWithPlain(engine, request);
    json["compare"] = {{"drafted", FiguresJson(comparison.drafted)}, {"plain", FiguresJson(comparison.plain)}};
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
  ChooseModel(options);
  const std::string resolved_template =
      options.source == PromptSource::kIds ? "none" : ResolveTemplate(options.engine.model, options.template_name);
  if (options.system && resolved_template == "none") {
    throw UserError("--system needs a chat template, and this model has none", "name one with --template");
  }
  Engine engine = LoadEngine(options);
  if (chat) return RunChat(engine, options, resolved_template);
  GenerationRequest request = options.request;
  request.prompt_ids = PromptIds(engine, options, resolved_template);
  if (options.json) {
    PrintJson(engine, options, request, resolved_template);
  } else {
    PrintText(engine, options, request);
  }
  return Interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace hydrant::cli
