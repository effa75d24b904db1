// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/flags.h"
#include "cli/flags/default_model.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "eval/batch.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

using base::Json;

constexpr const char* kDescription =
    "Decode several sequences together, plainly and with draft heads, in turn: tokens/s of all sequences. The column\n"
    "\"decoding\" leaves the prompts' time out, as S_TG of llama-batched-bench does. Prompts are equally long parts "
    "of\n"
    "one text, and each reply must be the one that its prompt gets alone, token for token.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant bench batch                                         the embedded model with its heads\n"
    "  hydrant bench batch --model vicuna-7b --draft hydra-7b --sequences 1,8,32 --tokens 64\n"
    "  hydrant bench batch --model M --prompt-tokens 512 --threads 8 --json\n";

// Repeated where longer prompts are wanted.
constexpr const char* kText =
    "Once upon a time there was a little fox who lived at the edge of a big forest. Every morning she ran down to the "
    "river to see if her friends were awake. One day the river was gone. The fox looked left and right, but there was "
    "only sand and a small blue fish in a bucket. \"Can you help me?\" asked the fish. \"I want to find the water "
    "again.\" The fox was kind, so she took the bucket and walked up the hill. On the way they met an old bear who "
    "was looking for his red hat, and a bird who could not find her nest. ";

struct Options {
  EngineOptions engine;
  std::vector<int32_t> sequences = {1, 2, 4, 8, 16};
  int32_t tokens = 128, prompt_tokens = 32;
  int rounds = 3;
  bool json = false;
};

std::vector<int32_t> ParseSequences(const std::string& value) {
  std::vector<int32_t> sequences;
  for (const std::string& item : ListItems(value)) {
    const auto number = static_cast<int32_t>(ParseInteger("--sequences", item, 1, 4096));
    if (std::ranges::find(sequences, number) != sequences.end()) {
      throw UserError(fmt::format("--sequences has {} twice", number), "name each number once");
    }
    sequences.push_back(number);
  }
  if (sequences.empty()) throw UserError("--sequences is an empty list", "give one number at least");
  return sequences;
}

bool ParseFlags(const std::vector<std::string>& args, Options& options) {
  FlagSet flags("hydrant bench batch", kDescription, kExamples);
  AddModelFlags(flags, options.engine);
  flags.Text("--tree", "TREE", &options.engine.tree,
             "As in run: auto, a preset, a file, a list, dynamic or beam (default auto)");
  AddTreeMemoryFlag(flags, options.engine);
  flags.Group("Measuring");
  const auto integer = [&flags](const char* flag, int64_t min, int64_t max, auto* target, const std::string& help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) { *target = static_cast<int32_t>(ParseInteger(flag, value, min, max)); }, help);
  };
  flags.Value(
      "--sequences", "LIST", [&options](const std::string& value) { options.sequences = ParseSequences(value); },
      "Numbers of sequences that are decoded together (default 1,2,4,8,16)");
  integer("--tokens", 2, 1 << 20, &options.tokens,
          "New tokens of each sequence; a token that ends replies does not end it (default 128)");
  integer("--prompt-tokens", 1, 1 << 20, &options.prompt_tokens, "Tokens of each prompt (default 32)");
  integer("--rounds", 1, 10'000, &options.rounds, "Timed rounds, after one that is not (default 3)");
  flags.Switch("--json", &options.json, "Print one JSON object");
  flags.Group("Machine");
  AddMachineFlags(flags, options.engine);
  AddKvMemoryFlag(flags, options.engine);
  if (!flags.Parse(args)) return false;
  CheckNotEmpty(flags, "--model", options.engine.model);
  CheckDraftHasModel(options.engine);
  ChooseModel(options.engine);
  if (flags.Given("--tree") && options.engine.draft.empty()) {
    throw UserError("--tree needs draft heads", "give --draft DIR");
  }
  return true;
}

// Parts of the text, each beginning at another token: equally long, and no two of them the same.
std::vector<GenerationRequest> RequestsFor(const Options& options, const Engine& engine) {
  if (!engine.info().has_tokenizer) {
    throw UserError(options.engine.model + ": has no tokenizer.json or tokenizer.model for the prompts");
  }
  const auto most = static_cast<size_t>(*std::ranges::max_element(options.sequences));
  const auto length = static_cast<size_t>(options.prompt_tokens);
  const std::vector<int32_t> text = engine.Tokenize(kText, false, false), bos = engine.Tokenize("", false, true);
  std::vector<GenerationRequest> requests(most);
  for (size_t i = 0; i < most; ++i) {
    std::vector<int32_t>& ids = requests[i].prompt_ids;
    if (!bos.empty() && length > 1) ids.push_back(bos.front());
    // After a turn through the text the step changes, so that prompts stay different.
    const size_t step = 1 + i / text.size();
    for (size_t t = i; ids.size() < length; t += step) ids.push_back(text[t % text.size()]);
    requests[i].stop = {.max_tokens = options.tokens, .ignore_eos = true, .stop = {}};
  }
  return requests;
}

void CheckFits(const Options& options, const EngineInfo& info) {
  if (options.prompt_tokens + options.tokens <= info.max_positions) return;
  throw UserError(fmt::format("--tokens {} after --prompt-tokens {} is more than the {} positions of {}",
                              options.tokens, options.prompt_tokens, info.max_positions, options.engine.model));
}

Json BatchJson(const Options& options, const EngineInfo& info, std::span<const eval::BatchMethod> methods,
               const eval::BatchResult& result) {
  Json json = {
      {"model", options.engine.model}, {"draft", options.engine.draft.empty() ? Json() : Json(options.engine.draft)},
      {"tokens", options.tokens},      {"prompt_tokens", options.prompt_tokens},
      {"rounds", result.rounds},       {"threads", info.threads},
      {"cpu_target", info.cpu_target}, {"kv_type", info.kv_type},
      {"weights", info.weights},       {"head_weights", info.head_weights.empty() ? Json() : Json(info.head_weights)},
      {"texts_equal", true},           {"version", HYDRANT_VERSION},
      {"methods", Json::array()}};
  for (size_t m = 0; m < methods.size(); ++m) {
    Json rows = Json::array();
    for (const eval::BatchRow& row : result.rows[m]) {
      Json one = {{"sequences", row.sequences}, {"tokens_per_step", row.tokens_per_step}};
      PutSpread(one, "tokens_per_second", row.tokens_per_second);
      PutSpread(one, "decode_tokens_per_second", row.decode_tokens_per_second);
      PutSpread(one, "speedup", row.speedup);
      rows.push_back(std::move(one));
    }
    json["methods"].push_back({{"name", methods[m].name}, {"rows", std::move(rows)}});
  }
  return json;
}

std::string BatchText(const Options& options, const EngineInfo& info, std::span<const eval::BatchMethod> methods,
                      const eval::BatchResult& result) {
  std::string text = fmt::format("{:>9} {:12} {:>11} {:>9} {:>9} {:>19} {:>8}\n", "sequences", "", "tokens/step",
                                 "tokens/s", "decoding", "least .. most", "speedup");
  for (size_t s = 0; s < options.sequences.size(); ++s) {
    for (size_t m = 0; m < methods.size(); ++m) {
      const eval::BatchRow& row = result.rows[m][s];
      const eval::Spread& rate = row.decode_tokens_per_second;
      text += fmt::format("{:9} {:12} {:11.2f} {:9.1f} {:9.1f} {:>19} {:7.2f}x\n", row.sequences, methods[m].name,
                          row.tokens_per_step, row.tokens_per_second.median, rate.median,
                          fmt::format("{:.1f} .. {:.1f}", rate.min, rate.max), row.speedup.median);
    }
  }
  return text + fmt::format(
                    "Every text is the one of its prompt alone. {} tokens after prompts of {}; medians of {} rounds, "
                    "in turn; {} threads, {}, weights {}.\n",
                    options.tokens, options.prompt_tokens, result.rounds, info.threads, info.cpu_target, info.weights);
}

}  // namespace

int BenchBatch(const std::vector<std::string>& args) {
  Options options;
  if (!ParseFlags(args, options)) return kExitOk;
  options.engine.on_pack = PackProgress();
  options.engine.stop = StopFlag();
  options.engine.max_running = std::max(options.engine.max_running, *std::ranges::max_element(options.sequences));
  Engine engine(options.engine);
  const EngineInfo& info = engine.info();
  PrintWarnings(info.warnings);
  CheckFits(options, info);
  const std::vector<GenerationRequest> requests = RequestsFor(options, engine);
  std::vector<eval::BatchMethod> methods = {{"plain", &engine, false}};
  if (!options.engine.draft.empty()) methods.push_back({info.drafter, &engine, true});
  Progress progress("decoding");
  eval::BatchOptions measure{.sequences = options.sequences, .rounds = options.rounds};
  measure.on_progress = [&progress](double share) {
    progress.Update(share);
    return !Interrupted();
  };
  const eval::BatchResult result = eval::MeasureBatches(methods, requests, measure);
  progress.Clear();
  if (result.rounds > 0) {
    Print(options.json ? base::DumpJson(BatchJson(options, info, methods, result)) + "\n"
                       : EscapedName(BatchText(options, info, methods, result), "\n"));
  }
  return Interrupted() ? InterruptedExit() : kExitOk;
}

}  // namespace hydrant::cli
