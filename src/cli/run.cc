// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
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

// Of a comparison: short generations need many, because neighbours of the machine come and go within a second.
constexpr int32_t kLeastRounds = 3;
constexpr double kLeastSeconds = 2, kSecondsPerWay = 0.3;

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

// One run of each way of decoding a prompt.
using Way = std::function<GenerationResult()>;
using Round = std::vector<GenerationResult>;

// Each way in turn: a round untimed, then at least kLeastRounds, until the time is over. Nothing when interrupted.
std::vector<Round> InTurn(std::span<const Way> ways, const std::string& title) {
  std::vector<Round> rounds;
  std::vector<int32_t> expected;
  Progress progress(title);
  const auto start = std::chrono::steady_clock::now();
  const double planned = std::max(kLeastSeconds, kSecondsPerWay * static_cast<double>(ways.size()));
  double share = 0;  // done
  for (int32_t count = 0; share < 1; ++count) {
    Round round;
    for (const Way& way : ways) {
      round.push_back(way());
      if (Interrupted()) return {};
      const std::vector<int32_t>& tokens = round.back().token_ids;
      if (expected.empty()) expected = tokens;
      if (tokens == expected) continue;
      const auto [a, b] = std::ranges::mismatch(tokens, expected);
      throw InternalError(fmt::format("two ways of decoding the same prompt differ at token {}", a - tokens.begin()),
                          "this is a bug in hydrant; please report it with the command that led here");
    }
    if (count > 0) rounds.push_back(std::move(round));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    share = std::min((count + 1.0) / (kLeastRounds + 1), seconds.count() / planned);
    progress.Update(std::min(share, 1.0));
  }
  return rounds;
}

// A way of drafting, and how to decode that way.
struct Drafting {
  std::string tree;  // as --tree takes it; empty: the default
  float p_min = 0;
  int32_t lookup = 0;

  void Use(Engine& engine, GenerationRequest& request) const {
    if (engine.info().num_heads > 0) engine.UseTree(tree);
    request.draft_p_min = p_min;
    request.lookup.max_tokens = lookup;
  }
  // Both stay where they are for as long as the way is used, and this too.
  Way Decode(Engine& engine, GenerationRequest& request) const {
    return [this, &engine, &request] {
      Use(engine, request);
      return GenerateSilently(engine, request);
    };
  }
};

// Of the way in use.
TreeSpeed SpeedOf(const Engine& engine, const GenerationRequest& request, std::span<const Round> rounds, size_t way) {
  std::vector<GenerationResult> runs;
  for (const Round& round : rounds) runs.push_back(round[way]);
  const EngineInfo& info = engine.info();
  return {.name = info.tree_name,
          .choices = info.tree_json,
          .nodes = info.tree_nodes,
          .p_min = request.draft_p_min,
          .lookup = request.lookup.max_tokens,
          .figures = MedianFigures(runs)};
}

// Of each way: its speed over the mean of its round, the median. Rounds differ more than ways do.
std::vector<double> RelativeSpeeds(std::span<const Round> rounds) {
  std::vector<std::vector<double>> speeds(rounds.front().size());  // [ways] of [rounds]
  for (const Round& round : rounds) {
    double sum = 0;
    for (const GenerationResult& run : round) sum += TokensPerSecond(run);
    for (size_t way = 0; way < round.size(); ++way) speeds[way].push_back(TokensPerSecond(round[way]) / sum);
  }
  std::vector<double> medians;
  for (std::vector<double>& speed : speeds) medians.push_back(Median(std::move(speed)));
  return medians;
}

// Every tree with every smallest probability and every longest lookup.
std::vector<Drafting> DraftingsOf(const RunOptions& options) {
  const std::vector<std::string> trees = options.trees.empty() ? std::vector<std::string>{""} : options.trees;
  const std::vector<float> p_mins = options.draft_p_mins.empty() ? std::vector<float>{0} : options.draft_p_mins;
  const std::vector<int32_t> lookups = options.lookups.empty() ? std::vector<int32_t>{0} : options.lookups;
  std::vector<Drafting> draftings;
  for (const std::string& tree : trees) {
    for (const float p_min : p_mins) {
      for (const int32_t lookup : lookups) draftings.push_back({tree, p_min, lookup});
    }
  }
  return draftings;
}

// The way of drafting to use, and what it was chosen from.
struct Choice {
  std::vector<TreeSpeed> tried;  // empty where there was no choice, or it was interrupted
  Drafting fastest;
  std::optional<Drafting> heads_alone;  // the fastest without lookup, where `fastest` has heads and looks up
};

// Leaves the fastest in use.
Choice ChooseDrafting(Engine& engine, const RunOptions& options, GenerationRequest& request) {
  const std::vector<Drafting> draftings = DraftingsOf(options);
  Choice choice{.tried = {}, .fastest = draftings.front(), .heads_alone = {}};
  if (draftings.size() == 1) return choice;
  std::vector<Way> ways;
  for (const Drafting& drafting : draftings) ways.push_back(drafting.Decode(engine, request));
  const std::vector<Round> rounds = InTurn(ways, "trying trees");
  if (rounds.empty()) return choice;
  const std::vector<double> speeds = RelativeSpeeds(rounds);
  size_t best = 0, alone = draftings.size();
  for (size_t way = 0; way < draftings.size(); ++way) {
    draftings[way].Use(engine, request);
    choice.tried.push_back(SpeedOf(engine, request, rounds, way));
    if (speeds[way] > speeds[best]) best = way;
    if (draftings[way].lookup == 0 && (alone == draftings.size() || speeds[way] > speeds[alone])) alone = way;
  }
  choice.fastest = draftings[best];
  if (engine.info().num_heads > 0 && alone < draftings.size() && alone != best) choice.heads_alone = draftings[alone];
  choice.fastest.Use(engine, request);
  return choice;
}

// The way in use beside plain decoding, in runs of their own: those that it was chosen by favour it. Beside a lookup
// also the best way without.
std::optional<Comparison> CompareWithPlain(Engine& engine, GenerationRequest request, Choice choice) {
  GenerationRequest plain = request;
  plain.use_drafter = false;
  std::vector<Way> ways = {[&] { return GenerateSilently(engine, plain); }, choice.fastest.Decode(engine, request)};
  if (choice.heads_alone) ways.push_back(choice.heads_alone->Decode(engine, request));
  const std::vector<Round> rounds = InTurn(ways, "comparing with plain decoding");
  if (rounds.empty()) return std::nullopt;
  const auto speedup = [&](size_t way) {
    std::vector<double> speedups;
    for (const Round& round : rounds) speedups.push_back(TokensPerSecond(round[way]) / TokensPerSecond(round[0]));
    return Median(std::move(speedups));
  };
  Comparison comparison;
  comparison.tried = std::move(choice.tried);
  comparison.plain = SpeedOf(engine, plain, rounds, 0).figures;
  comparison.rounds = rounds.size();
  if (choice.heads_alone) {
    choice.heads_alone->Use(engine, request);
    comparison.heads_alone = SpeedOf(engine, request, rounds, 2);
    comparison.heads_alone_speedup = speedup(2);
  }
  choice.fastest.Use(engine, request);
  comparison.drafted = SpeedOf(engine, request, rounds, 1);
  comparison.speedup = speedup(1);
  return comparison;
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
                     {"tried", base::Json::array()}};
  if (comparison.heads_alone) {
    json["heads_alone"] = TreeJson(*comparison.heads_alone);
    json["heads_alone"]["speedup"] = comparison.heads_alone_speedup;
  }
  for (const TreeSpeed& tree : comparison.tried) json["tried"].push_back(TreeJson(tree));
  return json;
}

void PrintText(Engine& engine, const RunOptions& options, const GenerationRequest& request, Choice choice) {
  const bool color = UseColor(options);
  const GenerationResult result = StreamReply(engine, request, color);
  if (!result.has_text) Print(base::DumpJson(result.token_ids) + "\n");
  if (result.has_text && (StdoutIsTerminal() || options.compare_plain)) Print("\n");
  if (color) PrintError(ColorLegend(static_cast<int32_t>(result.depth_offered.size())) + "\n");
  if (options.stats) PrintError(WeightsText(engine.info()) + StatsText(request.prompt_ids, result));
  if (!options.compare_plain || Interrupted()) return;
  const auto comparison = CompareWithPlain(engine, request, std::move(choice));
  if (comparison) Print("\n" + ComparisonText(engine.info(), *comparison, result.token_ids.size()));
}

void PrintJson(Engine& engine, const RunOptions& options, const GenerationRequest& request,
               const std::string& resolved_template, Choice choice) {
  const GenerationResult result = GenerateSilently(engine, request);
  base::Json json = RunJson(options, resolved_template, engine.info(), request.prompt_ids, result);
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
