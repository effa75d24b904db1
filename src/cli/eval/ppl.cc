// SPDX-License-Identifier: Apache-2.0
#include "cli/eval/ppl.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <limits>
#include <memory>

#include "base/json.h"
#include "cli/eval/texts.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/run/report.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "eval/perplexity.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Print the perplexity of a text: exp of the mean of -ln p over its tokens, computed by the forward pass that\n"
    "generation uses. A text is cut into windows of --context tokens, --stride apart; each token but a text's first "
    "is\n"
    "scored once, by the first window that holds it (the convention of Hugging Face's documentation).";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant eval ppl --model models/tale-14m --text stories.txt\n"
    "  hydrant eval ppl --model models/tale-14m --weights w4a8 --text stories.txt --max-tokens 50000\n"
    "  hydrant eval ppl --model models/tale-14m --text dialogues.jsonl --field conversations --json\n";

constexpr std::array<std::string_view, 4> kSplits = {"auto", "none", "blank", "jsonl"};

struct PplOptions {
  EngineOptions engine;
  TextOptions text;
  eval::PerplexityOptions perplexity;
  bool json = false;
};

bool ParseFlags(const std::vector<std::string>& args, PplOptions& options) {
  FlagSet flags("hydrant eval ppl", kDescription, kExamples);
  AddBaseFlags(flags, options.engine);
  flags.Text("--text", "FILE", &options.text.file, "The text (default: stdin)");
  flags.Value(
      "--split", "HOW",
      [&options](const std::string& value) { options.text.split = ParseChoice("--split", value, kSplits); },
      "Several texts in a file: blank (lines between them), jsonl (one object a line), none; auto = jsonl for\n"
      "*.jsonl, else none (default auto)");
  flags.Text("--field", "NAME", &options.text.field,
             "JSONL: the field with the text or the messages (default: text, conversations or messages)");
  const auto number = [&flags](const char* flag, auto* target, const std::string& help) {
    flags.Value(
        flag, "N",
        [=](const std::string& value) {
          using Number = std::remove_pointer_t<decltype(target)>;
          *target = static_cast<Number>(ParseInteger(flag, value, 1, std::numeric_limits<Number>::max()));
        },
        help);
  };
  number("--context", &options.perplexity.context, "Tokens of a window (default: all positions of the model)");
  number("--stride", &options.perplexity.stride, "From one window to the next (default: half of the context)");
  number("--max-tokens", &options.perplexity.max_tokens, "Stop after so many scored tokens (default: all)");
  flags.Switch("--json", &options.json, "Print one JSON object");
  AddMachineFlags(flags, options.engine);
  if (!flags.Parse(args)) return false;
  if (!flags.Given("--model")) throw UserError("--model is missing");
  CheckNotEmpty(flags, "--model", options.engine.model);
  CheckNotEmpty(flags, "--text", options.text.file);
  CheckNotEmpty(flags, "--cpu-target", options.engine.cpu_target);
  options.text.max_tokens = options.perplexity.max_tokens;
  CheckFolders(options.engine);
  return true;
}

std::string ResultText(const load::LoadedModel& loaded, const eval::PerplexityResult& result, double seconds) {
  const auto scored = static_cast<double>(result.num_scored);
  return fmt::format(
      "perplexity {:.4f} over {} tokens (loss {:.5f}, most likely token right {:.2f} %)\n{}"
      "{} windows, {:.1f} s, {:.0f} tokens/s\n",
      result.perplexity(), result.num_scored, result.log_loss / scored,
      100 * static_cast<double>(result.num_correct) / scored, WeightsText(loaded.info), result.num_windows, seconds,
      scored / seconds);
}

base::Json ResultJson(const PplOptions& options, const load::LoadedModel& loaded, const eval::PerplexityResult& result,
                      double seconds) {
  const EngineInfo& info = loaded.info;
  const auto scored = static_cast<double>(result.num_scored);
  return {{"perplexity", result.perplexity()},
          {"loss", result.log_loss / scored},
          {"accuracy", static_cast<double>(result.num_correct) / scored},
          {"tokens", result.num_scored},
          {"windows", result.num_windows},
          {"context", options.perplexity.context},
          {"stride", options.perplexity.stride},
          {"seconds", seconds},
          {"model", options.engine.model},
          {"weights", info.weights},
          {"weight_bytes", info.weight_bytes},
          {"kv_type", info.kv_type},
          {"cpu_target", info.cpu_target},
          {"threads", info.threads},
          {"text", options.text.file.empty() ? base::Json() : base::Json(options.text.file)},
          {"version", HYDRANT_VERSION}};
}

}  // namespace

int EvalPpl(const std::vector<std::string>& args) {
  PplOptions options;
  if (!ParseFlags(args, options)) return kExitOk;
  options.engine.on_pack = PackProgress();
  options.engine.stop = StopFlag();
  const std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(options.engine);
  PrintWarnings(loaded->info.warnings);
  const std::vector<std::vector<int32_t>> texts = ReadTexts(*loaded, options.text);
  eval::SetDefaults(*loaded, options.perplexity);
  Progress progress("scoring");
  options.perplexity.progress = [&progress](double share) {
    if (Interrupted()) throw Interruption();
    progress.Update(share);
  };
  const auto start = std::chrono::steady_clock::now();
  const eval::PerplexityResult result = eval::EvalPerplexity(*loaded, texts, options.perplexity);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  progress.Clear();
  if (options.json) {
    Print(base::DumpJson(ResultJson(options, *loaded, result, seconds)) + "\n");
  } else {
    Print(EscapedName(ResultText(*loaded, result, seconds), "\n"));
  }
  return kExitOk;
}

}  // namespace hydrant::cli
