// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/flags.h"
#include "cli/flags/default_model.h"
#include "cli/flags/drafting_flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/values.h"
#include "cli/run/acceptance.h"
#include "cli/run/prompt.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/option_names.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "eval/latency.h"
#include "eval/random_engine.h"
#include "eval/random_heads.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

using base::Json;

constexpr const char* kDescription =
    "Decode one prompt again and again, plainly and with each heads folder, in turn: median, least and most of the "
    "time,\n"
    "tokens/s, and the speedup over plain decoding of the same round. All texts must be equal, token for token.\n"
    "With --shape: random weights, no download; random heads draft what is hardly ever accepted.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant bench latency                                     the embedded model with its heads\n"
    "  hydrant bench latency --model vicuna-7b --draft medusa-7b --draft hydra-7b\n"
    "  hydrant bench latency --draft D --tree '[[0],[0,0],[1]]' --temperature 0.7 --json\n"
    "  hydrant bench latency --shape 7b --heads hydra++ --max-tokens 32 --runs 3\n";

struct Options {
  RunOptions run;  // but its prompt and drafts; request: of all methods
  std::vector<std::string> drafts;
  eval::RandomModel random;  // with --shape
  std::string prompt = "Once upon a time there was a little fox who";
  int runs = 10;
};

void AddShapeFlags(FlagSet& flags, Options& options) {
  flags.Group("Random weights");
  flags.Value(
      "--shape", "NAME",
      [&options](const std::string& value) {
        options.random.shape = ParseChoice("--shape", value, eval::ShapeNames());
      },
      std::string(eval::kShapesHelp) +
          "; --weights auto is w4a8 then, --head-weights auto the same as --weights, and the prompt is --prompt-ids "
          "(default 1 to 16)");
  flags.Value(
      "--heads", "LIST", [&options](const std::string& value) { options.random.heads = ParseHeadKinds(value); },
      "With --shape: " + eval::RandomDrafterList() + ", separated by commas (default none)");
}

void AddPromptFlags(FlagSet& flags, Options& options) {
  flags.Group("Prompt");
  flags.Text("--prompt", "TEXT", &options.prompt, "The prompt (default: the beginning of a tale)");
  flags.Value(
      "--prompt-ids", "LIST|FILE",
      [&options](const std::string& value) {
        options.run.request.prompt_ids = ParseIdList("--prompt-ids", value, true);
      },
      "Token ids such as 1,2 or [1, 2], used exactly as given");
  AddTemplateFlag(flags, options.run);
  flags.Value(
      "--max-tokens", "N",
      [&options](const std::string& value) {
        options.run.request.stop.max_tokens = static_cast<int32_t>(ParseInteger("--max-tokens", value, 2, 1 << 20));
      },
      "New tokens (default 128); an end-of-sequence token does not end the text");
  flags.Value(
      "--temperature", "X",
      [&options](const std::string& value) {
        options.run.request.sampling.temperature = ParseFloat("--temperature", value, {.min = 0, .max = 100});
      },
      "0 = greedy (default 0)");
  flags.Value(
      "--seed", "N",
      [&options](const std::string& value) { options.run.request.sampling.seed = ParseSeed("--seed", value); },
      "Of the sampled text (default 0)");
}

// Random weights come from no folder and have no tokenizer.
void CheckShape(const FlagSet& flags) {
  if (!flags.Given("--shape")) {
    if (flags.Given("--heads")) throw UserError("--heads is for random weights", "add --shape, or give --draft DIR");
    return;
  }
  for (const char* flag : {"--model", "--draft", "--prompt", "--template", "--draft-vocab", "--draft-vocab-text"}) {
    if (!flags.Given(flag)) continue;
    throw UserError(
        fmt::format("--shape makes random weights without a tokenizer, and {} is for those of a folder", flag),
        "leave one of them out; --heads, --prompt-ids and --draft-vocab-size go with --shape");
  }
}

void CheckTogether(const FlagSet& flags, const Options& options) {
  CheckShape(flags);
  if (flags.Given("--prompt-ids") && (flags.Given("--prompt") || flags.Given("--template"))) {
    throw UserError("--prompt-ids stands for the whole prompt", "leave out --prompt and --template");
  }
  if (flags.Given("--prompt-ids") && options.run.request.prompt_ids.empty()) {
    throw UserError("--prompt-ids is an empty list", "give one token at least");
  }
  CheckNotEmpty(flags, "--model", options.run.engine.model);
  CheckNotEmpty(flags, "--prompt", options.prompt);
  if (flags.Given("--shape") ? !options.random.heads.empty()
                             : options.run.engine.model.empty() || !options.drafts.empty())
    return;  // the embedded model has heads
  RefuseWithoutDrafter(flags, flags.Given("--shape") ? "give --heads" : "give --draft DIR");
}

bool ParseFlags(const std::vector<std::string>& args, Options& options) {
  options.run.request.stop = {.max_tokens = 128, .ignore_eos = true, .stop = {}};
  FlagSet flags("hydrant bench latency", kDescription, kExamples);
  flags.Text("--model", "DIR", &options.run.engine.model, "Base model folder (default: the embedded model)");
  flags.Repeated(
      "--draft", "DIR", [&options](const std::string& value) { options.drafts.push_back(value); },
      "Folder with heads; may be given several times (default: the embedded heads, with the embedded model)");
  AddShapeFlags(flags, options);
  flags.Group("Drafting and weights");
  AddDraftingFlags(flags, options.run, {});
  AddWeightFlags(flags, options.run.engine);
  AddPromptFlags(flags, options);
  flags.Group("Measuring");
  flags.Value(
      "--runs", "N",
      [&options](const std::string& value) {
        options.runs = static_cast<int>(ParseInteger("--runs", value, 1, 10000));
      },
      "Timed generations of each method, after one untimed (default 10)");
  flags.Switch("--json", &options.run.json, "Print one JSON object");
  flags.Group("Machine");
  AddMachineFlags(flags, options.run.engine);
  AddKvMemoryFlag(flags, options.run.engine);
  if (!flags.Parse(args)) return false;
  CheckTogether(flags, options);
  CheckOneOfEach(options.run, false);
  if (!options.drafts.empty()) options.run.engine.draft = options.drafts.front();  // each engine gets its own
  CheckDrafting(flags, options.run);
  options.run.engine.draft.clear();
  if (flags.Given("--shape")) {
    ChooseRandomFormats(options.run.engine);
    if (options.run.request.prompt_ids.empty()) {
      for (int32_t id = 1; id <= 16; ++id) options.run.request.prompt_ids.push_back(id);
    }
    return true;
  }
  if (options.run.engine.model.empty()) {
    const DefaultModel found = FindDefaultModel();
    options.run.engine.model = found.model;
    if (options.drafts.empty()) options.drafts = {found.draft};
  }
  CheckIsFolder("--model", options.run.engine.model);
  for (const std::string& draft : options.drafts) CheckIsFolder("--draft", draft);
  return true;
}

// Over random weights: none where Ctrl-C stopped them.
std::vector<std::unique_ptr<Engine>> MakeEngines(const Options& options) {
  EngineOptions engine = options.run.engine;
  engine.stop = StopFlag();
  Progress progress("making random weights");
  return eval::MakeRandomEngines(options.random, engine, [&progress](double share) {
    progress.Update(share);
    return !Interrupted();
  });
}

// One engine per heads folder; plain decoding on the first, with the heads idle.
std::vector<std::unique_ptr<Engine>> LoadEngines(Options& options) {
  std::vector<std::unique_ptr<Engine>> engines;
  options.run.engine.on_pack = PackProgress();
  options.run.engine.stop = StopFlag();
  for (const std::string& draft : options.drafts) {
    EngineOptions own = options.run.engine;
    own.draft = draft;
    engines.push_back(std::make_unique<Engine>(own));
  }
  if (engines.empty()) engines.push_back(std::make_unique<Engine>(options.run.engine));
  for (const std::unique_ptr<Engine>& engine : engines) PrintWarnings(engine->info().warnings);
  return engines;
}

// "hydra++"; where several folders hold the same kind, with the folder's name.
std::string MethodName(const Options& options, const std::vector<std::unique_ptr<Engine>>& engines, size_t index) {
  const std::string& kind = engines[index]->info().drafter;
  int same = 0;
  for (const std::unique_ptr<Engine>& engine : engines) same += engine->info().drafter == kind ? 1 : 0;
  if (same == 1 || options.drafts.empty()) return kind;
  return fmt::format("{} ({})", kind, std::filesystem::path(options.drafts[index]).filename().string());
}

// Of heads in folders that hardly any draft was accepted: random ones are meant to fail.
std::vector<std::string> AcceptanceWarnings(const Options& options, std::span<const eval::LatencyMethod> methods,
                                            const eval::LatencyResult& result) {
  std::vector<std::string> warnings;
  for (size_t m = 0; m < result.rows.size() && !options.drafts.empty(); ++m) {
    const std::string low = methods[m].use_drafter ? LowAcceptance(result.rows[m].median_run) : "";
    if (!low.empty()) warnings.push_back(methods[m].name + ": " + low);
  }
  return warnings;
}

Json LatencyJson(const Options& options, const std::vector<std::unique_ptr<Engine>>& engines,
                 std::span<const eval::LatencyMethod> methods, const eval::LatencyResult& result) {
  const EngineInfo& info = engines.front()->info();
  Json json = {{"model", options.run.engine.model.empty() ? Json() : Json(options.run.engine.model)},
               {"shape", options.random.shape.empty() ? Json() : Json(options.random.shape)},
               {"prompt_tokens", options.run.request.prompt_ids.size()},
               {"tokens", result.token_ids.size()},
               {"runs", result.rounds},
               {"temperature", ShortestDouble(options.run.request.sampling.temperature)},
               {"seed", options.run.request.sampling.seed},
               {"drafting", DraftingJson(options.run.request)},
               {"threads", info.threads},
               {"cpu_target", info.cpu_target},
               {"kv_type", info.kv_type},
               {"weights", info.weights},
               {"weight_bytes", info.weight_bytes},
               {"texts_equal", true},
               {"version", HYDRANT_VERSION},
               {"methods", Json::array()}};
  json["warnings"] = AcceptanceWarnings(options, methods, result);
  for (const std::unique_ptr<Engine>& engine : engines) {
    for (const std::string& warning : engine->info().warnings) json["warnings"].push_back(WithFlags(warning));
  }
  for (size_t m = 0; m < result.rows.size(); ++m) {
    const eval::LatencyRow& row = result.rows[m];
    const EngineInfo& own = methods[m].engine->info();
    Json one = {{"name", methods[m].name}, {"draft", nullptr}, {"tree", nullptr}};
    if (methods[m].use_drafter) {
      if (!options.drafts.empty()) one["draft"] = options.drafts[m - 1];
      one["head_weights"] = own.head_weights;
      one["head_weight_bytes"] = own.head_weight_bytes;
      one["tree"] = {{"name", row.tree.is_auto ? "auto" : row.tree.chosen.name}, {"nodes", row.tree.most_nodes}};
      if (row.tree.is_auto) one["tree_chosen"] = {{"name", row.tree.chosen.name}, {"why", row.tree.why}};
    }
    PutSpread(one, "ms", row.ms);
    PutSpread(one, "tokens_per_second", row.tokens_per_second);
    PutSpread(one, "decode_tokens_per_second", row.decode_tokens_per_second);
    PutSpread(one, "speedup", row.speedup);
    one["tokens_per_step"] = row.tokens_per_step;
    one["phase_ms"] = {{"prefill", row.phase_ms.prefill},
                       {"draft", row.phase_ms.draft},
                       {"forward", row.phase_ms.forward},
                       {"verify", row.phase_ms.verify},
                       {"commit", row.phase_ms.commit}};
    one["runs_ms"] = row.runs_ms;
    json["methods"].push_back(std::move(one));
  }
  return json;
}

std::string LatencyText(std::span<const eval::LatencyMethod> methods, const eval::LatencyResult& result) {
  std::string text = fmt::format("{:28} {:>5} {:>11} {:>9} {:>19} {:>9} {:>8}\n", "", "nodes", "tokens/step", "ms",
                                 "least .. most", "tokens/s", "speedup");
  for (size_t m = 0; m < result.rows.size(); ++m) {
    const eval::LatencyRow& row = result.rows[m];
    text +=
        fmt::format("{:28} {:5.1f} {:11.2f} {:9.1f} {:>19} {:9.1f} {:7.2f}x\n", methods[m].name, row.drafted_per_step,
                    row.tokens_per_step, row.ms.median, fmt::format("{:.1f} .. {:.1f}", row.ms.min, row.ms.max),
                    row.tokens_per_second.median, row.speedup.median);
  }
  for (size_t m = 0; m < result.rows.size(); ++m) {
    const TreeReport& tree = result.rows[m].tree;
    if (tree.is_auto) text += fmt::format("{}: tree auto, {} ({})\n", methods[m].name, tree.chosen.name, tree.why);
  }
  const EngineInfo& info = methods.front().engine->info();
  return text +
         fmt::format(
             "All {} tokens are equal in every run. Medians of {} runs each, in turn; {} threads, {}, weights {}.\n",
             result.token_ids.size(), result.rounds, info.threads, info.cpu_target, info.weights);
}

// A text that ends early would be shorter than was asked for.
void CheckFits(const Options& options, const EngineInfo& info) {
  const size_t prompt = options.run.request.prompt_ids.size();
  const auto most = static_cast<size_t>(info.max_positions),
             tokens = static_cast<size_t>(options.run.request.stop.max_tokens);
  if (prompt + tokens <= most) return;
  throw UserError(
      fmt::format("--max-tokens {} after a prompt of {} tokens is more than the {} positions of {}", tokens, prompt,
                  most, options.random.shape.empty() ? options.run.engine.model : "--shape " + options.random.shape));
}

}  // namespace

int BenchLatency(const std::vector<std::string>& args) {
  Options options;
  if (!ParseFlags(args, options)) return kExitOk;
  const bool random = !options.random.shape.empty();
  const std::vector<std::unique_ptr<Engine>> engines = random ? MakeEngines(options) : LoadEngines(options);
  if (engines.empty()) return InterruptedExit();
  if (options.run.request.prompt_ids.empty()) {
    const ChatMessage message{"user", options.prompt};
    options.run.request.prompt_ids = ConversationIds(
        *engines.front(), std::span(&message, 1), ResolveTemplate(options.run.engine.model, options.run.template_name));
  }
  CheckFits(options, engines.front()->info());
  std::vector<eval::LatencyMethod> methods = {{"plain", engines.front().get(), false}};
  for (size_t i = 0; i < std::max(options.drafts.size(), options.random.heads.size()); ++i) {
    methods.push_back({MethodName(options, engines, i), engines[i].get(), true});
  }
  if (methods.size() == 1 && options.run.request.lookup.max_tokens > 0) {
    methods.push_back({"lookup", engines.front().get(), true});
  }
  Progress progress("decoding");
  eval::LatencyOptions measure{.runs = options.runs};
  measure.on_progress = [&progress](double share) {
    progress.Update(share);
    return !Interrupted();
  };
  const eval::LatencyResult result = eval::MeasureLatency(methods, options.run.request, measure);
  progress.Clear();
  PrintWarnings(AcceptanceWarnings(options, methods, result));
  if (!result.rows.empty()) {
    Print(options.run.json ? base::DumpJson(LatencyJson(options, engines, methods, result)) + "\n"
                           : EscapedName(LatencyText(methods, result), "\n"));
  }
  return Interrupted() ? InterruptedExit() : kExitOk;
}

}  // namespace hydrant::cli
