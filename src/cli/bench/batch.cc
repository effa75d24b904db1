// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "cli/bench/batch.h"
#include "cli/bench/bench.h"
#include "cli/flags/default_model.h"
#include "cli/flags/drafting_flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/values.h"
#include "cli/run/prompt.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "eval/batch.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Decode several sequences together, plainly and with drafts, in turn: tokens/s of all sequences. Prompts are\n"
    "equally long parts of one text, or with --suite those of a file. Each reply must be the one that its prompt gets\n"
    "alone, token for token.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant bench batch                                         the embedded model with its heads\n"
    "  hydrant bench batch --model vicuna-7b --draft hydra-7b --sequences 1,8,32 --tokens 64\n"
    "  hydrant bench batch --model M --prompt-tokens 512 --threads 8 --json\n"
    "  hydrant bench batch --suite question.jsonl --tree auto --tree mc_sim_7b_63 --sequences 1,8\n"
    "  hydrant bench batch --model M --draft eagle --tree dynamic --draft-nodes 30 --suite prompts.txt\n";

// Repeated where longer prompts are wanted.
constexpr const char* kText =
    "Once upon a time there was a little fox who lived at the edge of a big forest. Every morning she ran down to the "
    "river to see if her friends were awake. One day the river was gone. The fox looked left and right, but there was "
    "only sand and a small blue fish in a bucket. \"Can you help me?\" asked the fish. \"I want to find the water "
    "again.\" The fox was kind, so she took the bucket and walked up the hill. On the way they met an old bear who "
    "was looking for his red hat, and a bird who could not find her nest. ";

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

void AddMeasureFlags(FlagSet& flags, BatchCommand& command) {
  flags.Group("Measuring");
  const auto integer = [&flags](const char* flag, int64_t min, int64_t max, auto* target, const std::string& help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) { *target = static_cast<int32_t>(ParseInteger(flag, value, min, max)); }, help);
  };
  flags.Value(
      "--sequences", "LIST", [&command](const std::string& value) { command.sequences = ParseSequences(value); },
      "Numbers of sequences that are decoded together (default 1,2,4,8,16; with --suite as far as it has prompts)");
  flags.Text("--suite", "FILE", &command.suite_file,
             "Decode all prompts of a file, so many at a time, in place of equally long parts of one text; the forms "
             "are those of 'bench serve', and of several turns the first is taken");
  AddTemplateFlag(flags, command.run);
  flags.Switch("--ignore-eos", &command.ignores_eos, "With --suite: go on after an end-of-sequence token");
  integer("--tokens", 2, 1 << 20, &command.run.request.stop.max_tokens,
          "New tokens of each sequence (default 128). A token that ends replies does not end it; with --suite it does "
          "without --ignore-eos");
  integer("--prompt-tokens", 1, 1 << 20, &command.prompt_tokens, "Tokens of each prompt (default 32)");
  flags.Value(
      "--temperature", "X",
      [&command](const std::string& value) {
        command.run.request.sampling.temperature = ParseFloat("--temperature", value, {.min = 0, .max = 100});
      },
      "0 = greedy (default 0)");
  flags.Value(
      "--seed", "N",
      [&command](const std::string& value) { command.run.request.sampling.seed = ParseSeed("--seed", value); },
      "Of the first sequence's text, each further one has the next (default 0)");
  integer("--rounds", 1, 10'000, &command.rounds, "Timed rounds, after one that is not (default 3)");
  flags.Switch("--json", &command.run.json, "Print one JSON object");
}

void CheckTogether(const FlagSet& flags, const BatchCommand& command) {
  const RunOptions& run = command.run;
  CheckNotEmpty(flags, "--model", run.engine.model);
  CheckNotEmpty(flags, "--suite", command.suite_file);
  for (const std::string& tree : run.trees) {
    CheckNotEmpty(flags, "--tree", tree);
    if (std::ranges::count(run.trees, tree) > 1) throw UserError(fmt::format("--tree {} is given twice", tree));
  }
  CheckDraftHasModel(run.engine);
  if (flags.Given("--suite") && flags.Given("--prompt-tokens")) {
    throw UserError("--prompt-tokens is for prompts that are parts of one text, and --suite names others",
                    "leave one of them out");
  }
  for (const char* flag : {"--template", "--ignore-eos"}) {
    if (!flags.Given(flag) || flags.Given("--suite")) continue;
    throw UserError(fmt::format("{} is for the prompts of --suite", flag), "add --suite FILE, or leave it out");
  }
  CheckOneOfEach(run, true);
}

// Before a model is loaded.
void ReadPrompts(BatchCommand& command, bool names_sequences) {
  command.suite = traffic::ReadSuite(command.suite_file);
  const size_t count = command.suite.prompts.size();
  const auto is_too_many = [count](int32_t sequences) { return static_cast<size_t>(sequences) > count; };
  if (!names_sequences) std::erase_if(command.sequences, is_too_many);
  const auto most = static_cast<size_t>(*std::ranges::max_element(command.sequences));
  if (count < most) {
    throw UserError(fmt::format("--sequences has {}, and {} has {} prompts", most, command.suite_file, count),
                    "lower --sequences, or name a longer file");
  }
}

bool ParseFlags(const std::vector<std::string>& args, BatchCommand& command) {
  RunOptions& run = command.run;
  run.request.stop = {.max_tokens = 128, .ignore_eos = true, .stop = {}};
  FlagSet flags("hydrant bench batch", kDescription, kExamples);
  AddModelFlags(flags, run.engine);
  AddDraftingFlags(flags, run, {.tree = "; several may be given, and each is measured"});
  AddMeasureFlags(flags, command);
  flags.Group("Machine");
  AddMachineFlags(flags, run.engine);
  AddKvMemoryFlag(flags, run.engine);
  if (!flags.Parse(args)) return false;
  CheckTogether(flags, command);
  CheckDrafting(flags, run);
  if (!command.suite_file.empty()) ReadPrompts(command, flags.Given("--sequences"));
  ChooseModel(run.engine);
  run.request.stop.ignore_eos = command.suite_file.empty() || command.ignores_eos;
  return true;
}

// Parts of the text, each beginning at another token: equally long, and no two of them the same.
std::vector<GenerationRequest> PartsOfText(const BatchCommand& command, const Engine& engine) {
  const auto most = static_cast<size_t>(*std::ranges::max_element(command.sequences));
  const auto length = static_cast<size_t>(command.prompt_tokens);
  const std::vector<int32_t> text = engine.Tokenize(kText, false, false), bos = engine.Tokenize("", false, true);
  std::vector<GenerationRequest> requests(most, command.run.request);
  for (size_t i = 0; i < most; ++i) {
    std::vector<int32_t>& ids = requests[i].prompt_ids;
    if (!bos.empty() && length > 1) ids.push_back(bos.front());
    // After a turn through the text the step changes, so that prompts stay different.
    const size_t step = 1 + i / text.size();
    for (size_t t = i; ids.size() < length; t += step) ids.push_back(text[t % text.size()]);
  }
  return requests;
}

// The first turn of each prompt.
std::vector<GenerationRequest> PromptsOfSuite(const BatchCommand& command, const Engine& engine) {
  const std::string template_name = ResolveTemplate(command.run.engine.model, command.run.template_name);
  std::vector<GenerationRequest> requests;
  for (const traffic::Prompt& prompt : command.suite.prompts) {
    std::vector<ChatMessage> messages;
    for (const traffic::Message& message : prompt.before) messages.push_back({message.role, message.content});
    messages.push_back({"user", prompt.turns.front()});
    requests.push_back(command.run.request);
    requests.back().prompt_ids = ConversationIds(engine, messages, template_name);
  }
  return requests;
}

std::vector<GenerationRequest> RequestsFor(const BatchCommand& command, const Engine& engine) {
  if (!engine.info().has_tokenizer) {
    throw UserError(command.run.engine.model + ": has no tokenizer.json or tokenizer.model for the prompts");
  }
  const bool is_suite = !command.suite_file.empty();
  std::vector<GenerationRequest> requests = is_suite ? PromptsOfSuite(command, engine) : PartsOfText(command, engine);
  const auto most = static_cast<size_t>(engine.info().max_positions),
             tokens = static_cast<size_t>(command.run.request.stop.max_tokens);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].sampling.seed += i;
    const size_t length = requests[i].prompt_ids.size();
    if (length + tokens <= most) continue;
    const std::string prompt = is_suite ? fmt::format("prompt {} of {}, {} tokens,", i + 1, command.suite_file, length)
                                        : fmt::format("--prompt-tokens {}", length);
    throw UserError(fmt::format("--tokens {} after {} is more than the {} positions of {}", tokens, prompt, most,
                                command.run.engine.model));
  }
  return requests;
}

// Plain decoding, then each way of drafting.
std::vector<eval::BatchMethod> MethodsOf(const RunOptions& run, Engine& engine) {
  std::vector<eval::BatchMethod> methods = {{"plain", &engine, false}};
  const std::string& drafter = engine.info().drafter;
  if (run.engine.draft.empty()) {
    if (!run.lookups.empty() && run.lookups.front() > 0) methods.push_back({"lookup", &engine});
    return methods;
  }
  if (run.trees.size() < 2) methods.push_back({drafter, &engine});
  constexpr size_t kLongestName = 24;  // of a column
  for (size_t t = 0; run.trees.size() > 1 && t < run.trees.size(); ++t) {
    const std::string& tree = run.trees[t];
    const std::string name = tree.size() > kLongestName ? fmt::format("tree {}", t + 1) : tree;
    methods.push_back({fmt::format("{}, {}", drafter, name), &engine, true, tree});
  }
  return methods;
}

}  // namespace

int BenchBatch(const std::vector<std::string>& args) {
  BatchCommand command;
  if (!ParseFlags(args, command)) return kExitOk;
  EngineOptions& options = command.run.engine;
  options.on_pack = PackProgress();
  options.stop = StopFlag();
  options.max_running = std::max(options.max_running, *std::ranges::max_element(command.sequences));
  Engine engine(options);
  PrintWarnings(engine.info().warnings);
  const std::vector<GenerationRequest> requests = RequestsFor(command, engine);
  const std::vector<eval::BatchMethod> methods = MethodsOf(command.run, engine);
  Progress progress("decoding");
  eval::BatchOptions measure{
      .sequences = command.sequences, .is_queue = !command.suite_file.empty(), .rounds = command.rounds};
  measure.on_progress = [&progress](double share) {
    progress.Update(share);
    return !Interrupted();
  };
  const eval::BatchResult result = eval::MeasureBatches(methods, requests, measure);
  progress.Clear();
  if (result.rounds > 0) {
    Print(command.run.json ? base::DumpJson(BatchJson(command, engine.info(), methods, result)) + "\n"
                           : EscapedName(BatchText(command, engine.info(), methods, result), "\n"));
  }
  return Interrupted() ? InterruptedExit() : kExitOk;
}

}  // namespace hydrant::cli
