// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/mapped_file.h"
#include "cli/chat_loop.h"
#include "cli/default_model.h"
#include "cli/engine_flags.h"
#include "cli/errors.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/run_flags.h"
#include "cli/stream.h"
#include "cli/terminal.h"
#include "cli/values.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::cli {
namespace {

constexpr size_t kComparisonRuns = 3;

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

// Unequal tokens are our mistake, not the user's.
void CheckEqual(const std::vector<int32_t>& drafted, const std::vector<int32_t>& plain) {
  if (drafted == plain) return;
  const auto [a, b] = std::mismatch(drafted.begin(), drafted.end(), plain.begin(), plain.end());
  throw InternalError(fmt::format("decoding with heads differs from plain decoding at token {}", a - drafted.begin()),
                      "this is a bug in hydrant; please report it with the command that led here");
}

// Every tree and plain decoding in turn, after one untimed run of each; then the fastest tree stays in use. Nothing
// when interrupted.
std::optional<Comparison> CompareWithPlain(Engine& engine, const RunOptions& options,
                                           const GenerationRequest& request) {
  std::vector<std::string> trees = options.trees;
  if (trees.empty()) trees.emplace_back();  // the default one
  GenerationRequest plain_request = request;
  plain_request.use_drafter = false;
  Comparison comparison;
  comparison.trees.resize(trees.size());
  std::vector<std::vector<GenerationResult>> drafted(trees.size());
  std::vector<GenerationResult> plain;
  Progress progress("comparing with plain decoding");
  for (size_t i = 0; i <= kComparisonRuns; ++i) {
    GenerationResult without = GenerateSilently(engine, plain_request);
    for (size_t t = 0; t < trees.size() && !Interrupted(); ++t) {
      progress.Update(static_cast<double>(i * trees.size() + t) /
                      static_cast<double>((kComparisonRuns + 1) * trees.size()));
      engine.UseTree(trees[t]);
      GenerationResult with_heads = GenerateSilently(engine, request);
      if (Interrupted()) break;
      CheckEqual(with_heads.token_ids, without.token_ids);
      comparison.trees[t] = {engine.info().tree_name, engine.info().tree_json, engine.info().tree_nodes, {}};
      if (i > 0) drafted[t].push_back(std::move(with_heads));
    }
    if (Interrupted()) return std::nullopt;
    if (i > 0) plain.push_back(std::move(without));
  }
  for (size_t t = 0; t < trees.size(); ++t) comparison.trees[t].figures = MedianFigures(drafted[t]);
  comparison.plain = MedianFigures(plain);
  engine.UseTree(trees[static_cast<size_t>(&comparison.fastest() - comparison.trees.data())]);
  return comparison;
}

base::Json FiguresJson(const SpeedFigures& figures) {
  return {{"tokens_per_step", figures.tokens_per_step},
          {"tokens_per_second", figures.tokens_per_second},
          {"draft_ms", figures.draft_ms},
          {"forward_ms", figures.forward_ms}};
}

base::Json ComparisonJson(const Comparison& comparison) {
  base::Json json = {{"drafted", FiguresJson(comparison.fastest().figures)},
                     {"plain", FiguresJson(comparison.plain)},
                     {"trees", base::Json::array()}};
  for (const TreeSpeed& tree : comparison.trees) {
    base::Json figures = FiguresJson(tree.figures);
    figures["name"] = tree.name;
    figures["nodes"] = tree.nodes;
    figures["choices"] = base::ParseJson(tree.choices, "the tree");
    json["trees"].push_back(std::move(figures));
  }
  return json;
}

// A generation as `generate` makes it, and what --compare-plain asks for: after it, or of several trees before it, so
// that it is by the fastest.
struct Answer {
  GenerationResult result;
  std::optional<Comparison> comparison;
};
template <typename Generate>
Answer MakeAnswer(Engine& engine, const RunOptions& options, const GenerationRequest& request,
                  const Generate& generate) {
  Answer answer;
  if (options.trees.size() > 1) answer.comparison = CompareWithPlain(engine, options, request);
  answer.result = generate();
  const bool compared = !options.compare_plain || options.trees.size() > 1;
  if (!compared && !Interrupted()) answer.comparison = CompareWithPlain(engine, options, request);
  return answer;
}

void PrintText(Engine& engine, const RunOptions& options, const GenerationRequest& request) {
  const bool color = UseColor(options);
  const auto generate = [&] {
    GenerationResult result = StreamReply(engine, request, color);
    if (!result.has_text) Print(base::DumpJson(result.token_ids) + "\n");
    if (result.has_text && (StdoutIsTerminal() || options.compare_plain)) Print("\n");
    if (color) PrintError(ColorLegend(static_cast<int32_t>(result.depth_offered.size())) + "\n");
    if (options.stats) PrintError(WeightsText(engine.info()) + StatsText(request.prompt_ids, result));
    return result;
  };
  const Answer answer = MakeAnswer(engine, options, request, generate);
  if (!answer.comparison) return;
  Print("\n" + ComparisonText(engine.info(), *answer.comparison, answer.result.token_ids.size()));
}

void PrintJson(Engine& engine, const RunOptions& options, const GenerationRequest& request,
               const std::string& resolved_template) {
  const Answer answer = MakeAnswer(engine, options, request, [&] { return GenerateSilently(engine, request); });
  base::Json json = RunJson(options, resolved_template, engine.info(), request.prompt_ids, answer.result);
  if (answer.comparison) json["compare"] = ComparisonJson(*answer.comparison);
  Print(base::DumpJson(json) + "\n");
  if (options.stats) PrintError(WeightsText(engine.info()) + StatsText(request.prompt_ids, answer.result));
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
