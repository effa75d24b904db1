// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

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

// Each way of decoding one prompt, in turn: one run untimed, then kComparisonRuns. Nothing when interrupted.
using Way = std::function<GenerationResult()>;
std::vector<std::vector<GenerationResult>> InTurn(std::span<const Way> ways, const std::string& title) {
  std::vector<std::vector<GenerationResult>> runs(ways.size());
  std::vector<int32_t> expected;
  Progress progress(title);
  for (size_t i = 0; i < (kComparisonRuns + 1) * ways.size(); ++i) {
    progress.Update(static_cast<double>(i) / static_cast<double>((kComparisonRuns + 1) * ways.size()));
    GenerationResult result = ways[i % ways.size()]();
    if (Interrupted()) return {};
    if (i == 0) expected = result.token_ids;
    if (result.token_ids != expected) {
      const auto [a, b] = std::ranges::mismatch(result.token_ids, expected);
      throw InternalError(
          fmt::format("two ways of decoding the same prompt differ at token {}", a - result.token_ids.begin()),
          "this is a bug in hydrant; please report it with the command that led here");
    }
    if (i >= ways.size()) runs[i % ways.size()].push_back(std::move(result));
  }
  return runs;
}

TreeSpeed TreeInUse(const Engine& engine, std::span<const GenerationResult> runs) {
  const EngineInfo& info = engine.info();
  return {info.tree_name, info.tree_json, info.tree_nodes, MedianFigures(runs)};
}

// Leaves the fastest of the trees in use.
std::vector<TreeSpeed> ChooseTree(Engine& engine, const std::vector<std::string>& trees,
                                  const GenerationRequest& request) {
  std::vector<Way> ways;
  for (const std::string& tree : trees) {
    ways.emplace_back([&] {
      engine.UseTree(tree);
      return GenerateSilently(engine, request);
    });
  }
  const auto runs = InTurn(ways, "trying trees");
  std::vector<TreeSpeed> tried;
  for (size_t t = 0; t < runs.size(); ++t) {
    engine.UseTree(trees[t]);
    tried.push_back(TreeInUse(engine, runs[t]));
  }
  const auto speed = [](const TreeSpeed& tree) { return tree.figures.tokens_per_second; };
  const auto fastest = std::ranges::max_element(tried, {}, speed);
  if (fastest != tried.end()) engine.UseTree(trees[static_cast<size_t>(fastest - tried.begin())]);
  return tried;
}

// The tree in use beside plain decoding, in runs of their own: those that a tree was chosen by favour it.
std::optional<Comparison> CompareWithPlain(Engine& engine, const GenerationRequest& request,
                                           std::vector<TreeSpeed> tried) {
  GenerationRequest plain_request = request;
  plain_request.use_drafter = false;
  const Way ways[] = {[&] { return GenerateSilently(engine, plain_request); },
                      [&] { return GenerateSilently(engine, request); }};
  const auto runs = InTurn(ways, "comparing with plain decoding");
  if (runs.empty()) return std::nullopt;
  return Comparison{std::move(tried), TreeInUse(engine, runs[1]), MedianFigures(runs[0])};
}

base::Json FiguresJson(const SpeedFigures& figures) {
  return {{"tokens_per_step", figures.tokens_per_step},
          {"tokens_per_second", figures.tokens_per_second},
          {"draft_ms", figures.draft_ms},
          {"forward_ms", figures.forward_ms}};
}

base::Json TreeJson(const TreeSpeed& tree) {
  base::Json json = FiguresJson(tree.figures);
  json["name"] = tree.name;
  json["nodes"] = tree.nodes;
  json["choices"] = base::ParseJson(tree.choices, "the tree");
  return json;
}

base::Json ComparisonJson(const Comparison& comparison) {
  base::Json json = {{"drafted", TreeJson(comparison.drafted)},
                     {"plain", FiguresJson(comparison.plain)},
                     {"tried", base::Json::array()}};
  for (const TreeSpeed& tree : comparison.tried) json["tried"].push_back(TreeJson(tree));
  return json;
}

void PrintText(Engine& engine, const RunOptions& options, const GenerationRequest& request,
               std::vector<TreeSpeed> tried) {
  const bool color = UseColor(options);
  const GenerationResult result = StreamReply(engine, request, color);
  if (!result.has_text) Print(base::DumpJson(result.token_ids) + "\n");
  if (result.has_text && (StdoutIsTerminal() || options.compare_plain)) Print("\n");
  if (color) PrintError(ColorLegend(static_cast<int32_t>(result.depth_offered.size())) + "\n");
  if (options.stats) PrintError(WeightsText(engine.info()) + StatsText(request.prompt_ids, result));
  if (!options.compare_plain || Interrupted()) return;
  const auto comparison = CompareWithPlain(engine, request, std::move(tried));
  if (comparison) Print("\n" + ComparisonText(engine.info(), *comparison, result.token_ids.size()));
}

void PrintJson(Engine& engine, const RunOptions& options, const GenerationRequest& request,
               const std::string& resolved_template, std::vector<TreeSpeed> tried) {
  const GenerationResult result = GenerateSilently(engine, request);
  base::Json json = RunJson(options, resolved_template, engine.info(), request.prompt_ids, result);
  if (options.compare_plain && !Interrupted()) {
    const auto comparison = CompareWithPlain(engine, request, std::move(tried));
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
  std::vector<TreeSpeed> tried;
  if (options.trees.size() > 1) tried = ChooseTree(engine, options.trees, request);
  if (Interrupted()) return kExitInterrupted;
  if (options.json) {
    PrintJson(engine, options, request, resolved_template, std::move(tried));
  } else {
    PrintText(engine, options, request, std::move(tried));
  }
  return Interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace hydrant::cli
