// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/serve_flags.h"

#include <array>
#include <string_view>

#include "cli/flags/drafting_flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Serve a model over HTTP, as OpenAI's API has it: requests of many clients share the engine's steps, and each gets "
    "the text that 'hydrant run' gives it alone. With --draft it comes faster.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant serve                                        the embedded model, for this machine alone\n"
    "  hydrant serve --model vicuna-7b --draft hydra-vicuna-7b --weights w4a8 --port 8000\n"
    "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 60}'\n";

void AddServerFlags(FlagSet& flags, ServeOptions& options) {
  flags.Group("Server");
  flags.Text("--host", "ADDRESS", &options.http.host,
             "Address to listen on: 127.0.0.1 = this machine alone, 0.0.0.0 = every network (default 127.0.0.1)");
  flags.Value(
      "--port", "N",
      [&options](const std::string& value) {
        options.http.port = static_cast<uint16_t>(ParseInteger("--port", value, 0, 65535));
      },
      "Port to listen on; 0 = a free one, which the first line names (default 8080)");
  flags.Text("--tls-cert", "FILE", &options.http.tls_cert, "Certificate chain (PEM): HTTPS in place of HTTP");
  flags.Text("--tls-key", "FILE", &options.http.tls_key, "Its private key (PEM)");
  flags.Text("--served-model-name", "NAME", &options.model_name,
             "The model's name for clients (default: the name of its folder)");
  flags.Text("--api-key-file", "FILE", &options.api_key_file,
             "Keys of those who may ask, one a line, with a name behind it if you like: KEY [NAME]");
  flags.Switch("--share-cache", &options.share_cache,
               "Let prompts of different keys share what is computed of a common beginning; how fast a reply starts "
               "then tells what others have asked before");
  flags.Switch("--log-requests", &options.log_requests, "Have requests and replies in the log, with all their text");
  flags.Switch("--quiet", &options.quiet, "No log: by default stderr gets one line of JSON for each reply");
  flags.Switch("--allow-unknown-fields", &options.allow_unknown,
               "Leave fields alone that nobody here knows; they are refused otherwise");
}

void AddLimitFlags(FlagSet& flags, ServeOptions& options) {
  flags.Group("Limits");
  const auto integer = [&flags](const char* flag, int64_t min, int64_t max, auto* target, const std::string& help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) {
          using Target = std::remove_reference_t<decltype(*target)>;
          *target = Target(ParseInteger(flag, value, min, max));
        },
        help);
  };
  integer("--max-batch", 1, 4096, &options.run.engine.max_running,
          "Sequences that run at a time; others wait (default 256)");
  integer("--queue", 0, 1 << 20, &options.queue, "Sequences that wait; further ones get status 429 (default 256)");
  integer("--max-per-key", 1, 1 << 20, &options.most_per_key,
          "Sequences of one API key that run or wait; further ones get status 429 (default: as of all together)");
  integer("--max-tokens", 1, INT32_MAX, &options.max_tokens,
          "Tokens of one reply; requests for more are refused (default: what the context holds)");
  integer("--request-timeout", 1, 86400, &options.request_timeout,
          "Seconds from a request to the end of its reply; what takes longer ends with status 504 (default: none)");
  flags.Value(
      "--preempt", "HOW",
      [&options](const std::string& value) {
        options.run.engine.may_preempt =
            ParseChoice("--preempt", value, std::array<std::string_view, 2>{"never", "recompute"}) == "recompute";
      },
      "When memory for keys and values is short: recompute = the youngest sequence gives its own up and computes them "
      "anew later, with the same text; never = a sequence starts only when it can run to its end (default recompute)");
  integer("--max-connections", 1, 1 << 20, &options.http.max_connections,
          "Open connections; further ones get status 503 (default 4096)");
  integer("--http-threads", 1, 64, &options.http.threads, "Threads of the network (default 2)");
  integer("--drain-delay", 0, 86400, &options.drain_delay,
          "Seconds after SIGTERM in which /ready says 503 and new requests are still answered (default 0)");
  integer("--shutdown-timeout", 0, 86400, &options.shutdown_timeout,
          "Seconds that running requests then have to finish (default 30)");
}

void Check(const FlagSet& flags, const ServeOptions& options) {
  CheckNotEmpty(flags, "--model", options.run.engine.model);
  CheckNotEmpty(flags, "--host", options.http.host);
  CheckNotEmpty(flags, "--api-key-file", options.api_key_file);
  CheckNotEmpty(flags, "--served-model-name", options.model_name);
  if (options.http.tls_cert.empty() != options.http.tls_key.empty()) {
    throw UserError("--tls-cert and --tls-key belong together, and one is missing");
  }
  if (options.quiet && options.log_requests) throw UserError("--quiet and --log-requests contradict one another");
  if (options.run.has_choice()) {
    throw UserError("a way of drafting is given several times, expected one of each flag",
                    "'hydrant run --compare-plain' finds the fastest");
  }
  CheckDraftHasModel(options.run.engine);
}

}  // namespace

std::optional<ServeOptions> ParseServeFlags(const std::vector<std::string>& args) {
  ServeOptions options;
  RunOptions& run = options.run;
  FlagSet flags("hydrant serve", kDescription, kExamples);
  flags.Group("Weights and drafts");
  AddModelFlags(flags, run.engine);
  AddDraftingFlags(flags, run, {.tree = "; with --accept typical the heads' trees.json, else mc_sim_7b_63"});
  AddTemplateFlag(flags, run);
  AddServerFlags(flags, options);
  AddLimitFlags(flags, options);
  AddAcceptFlags(flags, run.request.accept);
  flags.Group("Machine");
  AddMachineFlags(flags, run.engine);
  AddKvMemoryFlag(flags, run.engine);
  flags.First("Most used", {"--model", "--draft", "--host", "--port", "--template", "--max-batch"});
  if (!flags.Parse(args)) return std::nullopt;
  Check(flags, options);
  CheckDrafting(flags, run);
  CheckAcceptance(flags, run);
  return options;
}

}  // namespace hydrant::cli
