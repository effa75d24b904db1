// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/serve_options.h"

#include <fmt/core.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "base/mapped_file.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Send the prompts of a file to a server with OpenAI's API (hydrant serve, vLLM, llama.cpp) and print how fast its\n"
    "streamed replies come: time to the first token (TTFT), time per token (TPOT), gaps between events (ITL), whole\n"
    "replies, tokens/s and requests/s. Either so many prompts are open at a time (--concurrency), or they arrive at\n"
    "random at a rate that slow replies do not change (--rate).";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant bench serve --url http://127.0.0.1:8080 --suite question.jsonl --concurrency 1,4,16\n"
    "  hydrant bench serve --url http://127.0.0.1:8080 --suite prompts.txt --compare-plain\n"
    "  hydrant bench serve --url https://example.org --suite sharegpt.json --rate 2.5 --seconds 60\n"
    "Prompts are found in lines or arrays of JSON with \"turns\" (Spec-Bench, MT-bench), \"conversations\"\n"
    "(ShareGPT: the first text of the human), \"instruction\" or \"input\" (TensorRT-LLM), \"messages\",\n"
    "\"prompt\" or \"text\"; else each line is one. Turns are sent one after the other, with the replies\n"
    "between; --completions sends the first.\n";

constexpr int64_t kMostOpen = 100'000;

struct Loops {
  std::vector<int32_t> concurrencies;
  std::string rate;  // as it was given
};

void AddServerFlags(FlagSet& flags, BenchServeOptions& options, std::string& key_file) {
  flags.Group("Server");
  flags.Value(
      "--url", "URL", [&options](const std::string& value) { options.server.url = traffic::ParseServerUrl(value); },
      "Where the server is, such as http://127.0.0.1:8080; https:// for TLS (needed)");
  flags.Text("--model", "NAME", &options.request.model, "Model to ask for (default: the server's first)");
  flags.Text("--api-key-file", "FILE", &key_file,
             "File whose first word is the API key (default: the variable HYDRANT_API_KEY)");
  flags.Switch("--insecure", &options.server.is_insecure, "TLS: take any certificate");
  flags.Value(
      "--timeout", "X",
      [&options](const std::string& value) {
        options.server.timeout = ParseFloat("--timeout", value, {.min = 0, .max = 86400, .open_below = true});
      },
      "Seconds for a whole reply (default 600)");
}

void AddRequestFlags(FlagSet& flags, BenchServeOptions& options, bool& chat, bool& completions) {
  flags.Group("Requests");
  flags.Text("--suite", "FILE", &options.suite_file, "The prompts (needed)");
  flags.Switch("--chat", &chat, "Ask /v1/chat/completions (the default)");
  flags.Switch("--completions", &completions, "Ask /v1/completions, with the texts as they are");
  flags.Value(
      "--max-tokens", "N",
      [&options](const std::string& value) {
        options.request.max_tokens = static_cast<int32_t>(ParseInteger("--max-tokens", value, 1, 1 << 20));
      },
      "Most tokens of a reply (default 128)");
  flags.Value(
      "--temperature", "T",
      [&options](const std::string& value) {
        options.request.temperature = ShortestDouble(ParseFloat("--temperature", value, {.min = 0, .max = 100}));
      },
      "0 = the most likely token each time (default 0)");
  flags.Value(
      "--seed", "N",
      [&options](const std::string& value) {
        options.request.seed = static_cast<uint64_t>(ParseInteger("--seed", value, 0, 0x7fffffff));
      },
      "Of the first prompt's reply, each further one has the next; and of the arrivals (default 0)");
  flags.Switch("--ignore-eos", &options.request.ignore_eos,
               "Ask for replies that go on to --max-tokens (hydrant, vLLM and llama.cpp know how)");
}

void AddLoadFlags(FlagSet& flags, BenchServeOptions& options, Loops& loops) {
  flags.Group("Load");
  flags.Value(
      "--concurrency", "LIST",
      [&loops](const std::string& value) {
        for (const std::string& item : ListItems(value)) {
          loops.concurrencies.push_back(static_cast<int32_t>(ParseInteger("--concurrency", item, 1, kMostOpen)));
        }
      },
      "Prompts that are open at a time; several numbers are measured in turn (default 1)");
  flags.Value(
      "--rate", "R",
      [&options, &loops](const std::string& value) {
        options.plan.rate = ParseFloat("--rate", value, {.min = 0, .max = 1e5, .open_below = true});
        loops.rate = value;
      },
      "In place of it: prompts that arrive in a second, at random (Poisson)");
  const auto integer = [&flags](const char* flag, int64_t min, int64_t max, auto* target, const std::string& help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) {
          *target = static_cast<std::remove_pointer_t<decltype(target)>>(ParseInteger(flag, value, min, max));
        },
        help);
  };
  integer("--max-open", 1, kMostOpen, &options.plan.max_open,
          "With --rate: prompts that are open at a time; those that arrive beyond are dropped (default 1024)");
  flags.Value(
      "--seconds", "S",
      [&options](const std::string& value) {
        options.plan.seconds = ParseFloat("--seconds", value, {.min = 0, .max = 86400, .open_below = true});
      },
      "Begin prompts for so long in each round, from the file's start again where it is too short");
  integer("--requests", 1, int64_t{1} << 40, &options.plan.num_prompts,
          "Prompts of each round (default: those of the file once, or as many as --seconds has time for)");
  flags.Switch("--compare-plain", &options.compares_plain,
               "Measure the same prompts with plain decoding in turn, and compare the texts (hydrant only)");
  integer("--rounds", 1, 10'000, &options.rounds, "Rounds (default 1, with --compare-plain 4)");
  integer("--warmup", 0, int64_t{1} << 40, &options.warmup,
          "Prompts before the first round, not measured (default: as many as are open at a time; with "
          "--compare-plain a whole round)");
  flags.Switch("--json", &options.json, "Print one JSON object");
}

// The first word of the first line that is no comment: what `hydrant serve --api-key-file` reads has such lines, too.
std::string ReadKey(const std::string& file) {
  const std::string text = base::ReadTextFile(file, 1 << 20);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t word = text.find_first_not_of(" \t\r", begin);
    if (word < end && text[word] != '#') return text.substr(word, text.find_first_of(" \t\r\n", word) - word);
    begin = end + 1;
  }
  throw FileError(file, "has no API key");
}

void CheckKey(const std::string& key) {
  for (const char c : key) {
    if (c <= ' ' || c > '~') throw UserError("the API key has a character that keys do not have");
  }
}

void CheckTogether(const FlagSet& flags) {
  for (const char* flag : {"--url", "--suite"}) {
    if (!flags.Given(flag)) throw UserError(fmt::format("{} is needed", flag), "see hydrant bench serve --help");
  }
  for (const auto& [one, other] : {std::pair{"--chat", "--completions"}, std::pair{"--rate", "--concurrency"}}) {
    if (flags.Given(one) && flags.Given(other)) {
      throw UserError(fmt::format("{} and {} exclude one another", one, other), "leave one of them out");
    }
  }
  if (flags.Given("--max-open") && !flags.Given("--rate")) {
    throw UserError("--max-open is for --rate", "--concurrency says how many prompts are open at a time");
  }
}

std::vector<ServeWay> WaysOf(const Loops& loops, bool compares_plain) {
  std::vector<ServeWay> ways;
  const auto add = [&ways, compares_plain](const std::string& name, int32_t concurrency) {
    ways.push_back({name, concurrency, false});
    if (compares_plain) ways.push_back({name + ", plain", concurrency, true});
  };
  if (!loops.rate.empty()) add(loops.rate + "/s", 0);
  std::set<int32_t> seen;
  for (const int32_t concurrency : loops.concurrencies) {
    if (!seen.insert(concurrency).second) {
      throw UserError(fmt::format("--concurrency has {} twice", concurrency), "name each number once");
    }
    add(fmt::format("{} open", concurrency), concurrency);
  }
  if (ways.empty()) add("1 open", 1);
  return ways;
}

}  // namespace

std::optional<BenchServeOptions> ParseBenchServeFlags(const std::vector<std::string>& args) {
  BenchServeOptions options;
  Loops loops;
  std::string key_file;
  bool chat = false, completions = false;
  FlagSet flags("hydrant bench serve", kDescription, kExamples);
  AddServerFlags(flags, options, key_file);
  AddRequestFlags(flags, options, chat, completions);
  AddLoadFlags(flags, options, loops);
  if (!flags.Parse(args)) return std::nullopt;
  CheckTogether(flags);
  CheckNotEmpty(flags, "--model", options.request.model);
  CheckNotEmpty(flags, "--api-key-file", key_file);
  options.request.is_chat = !completions;
  options.plan.seed = options.request.seed;
  if (options.compares_plain && !flags.Given("--rounds")) options.rounds = 4;
  options.ways = WaysOf(loops, options.compares_plain);
  const char* const key = std::getenv("HYDRANT_API_KEY");
  options.server.api_key = !key_file.empty() ? ReadKey(key_file) : key != nullptr ? key : "";
  CheckKey(options.server.api_key);
  return options;
}

}  // namespace hydrant::cli
