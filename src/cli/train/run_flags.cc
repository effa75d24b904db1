// SPDX-License-Identifier: Apache-2.0
#include "cli/train/run_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "base/paths.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"
#include "parallel/mpi/make_communicator.h"
#include "train/time_text.h"

namespace hydrant::cli {
namespace {

constexpr std::array<std::string_view, 3> kPrecisions = {"auto", "f32", "bf16"};
constexpr std::array<std::string_view, 2> kLearned = {"replies", "all"};
constexpr std::array<std::string_view, 2> kFiles = {"pt", "safetensors"};
constexpr std::array<std::string_view, 3> kTypes = {"bf16", "f16", "f32"};

// A rank without a row in a batch waits for a whole step of the others, and all wait while rank 0 writes a checkpoint
// or makes a tokenizer: minutes with a large base. A process that dies ends the job without any wait.
constexpr std::chrono::minutes kRankLimit{30};

// The path, or what a folder holds.
void AddFiles(const std::string& path, std::vector<std::string>& files) {
  if (!base::IsFolder(path)) return files.push_back(path);
  std::vector<std::string> found;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(path, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    const std::string type = entry->path().extension().string();
    if (type == ".txt" || type == ".json" || type == ".jsonl") found.push_back(entry->path().string());
  }
  if (error) throw FileError(path, "cannot be read: " + error.message());
  if (found.empty()) throw FileError(path, "holds no file that ends in .txt, .json or .jsonl");
  std::ranges::sort(found);  // the order in which a folder lists its files is another on each disk
  files.insert(files.end(), found.begin(), found.end());
}

template <typename T>
void AddNumber(FlagSet& flags, const char* flag, const char* kind, int64_t min, T* target, const std::string& help) {
  flags.Value(
      flag, kind, [=](const std::string& value) { *target = static_cast<T>(ParseInteger(flag, value, min, 1 << 30)); },
      help);
}

}  // namespace

void AddTextFlags(FlagSet& flags, train::RunOptions& options, const TextHelp& help) {
  flags.Repeated(
      "--data", "PATH", [&options](const std::string& value) { AddFiles(value, options.data); },
      "Text, or conversations as JSON (ShareGPT, messages, Alpaca); of a folder all files in and below it that end in "
      ".txt, .json or .jsonl; may be given several times");
  flags.Text("--out", "DIR", &options.out, "Folder to make");
  flags.Switch("--resume", &options.resume, "Go on where the run in --out was");
  flags.Switch("--force", &options.replace, help.overwrites);
  flags.Text("--template", "NAME", &options.template_name, help.chat);
  flags.Value(
      "--learn", "WHAT",
      [&options](const std::string& value) {
        options.learns_prompts = ParseChoice("--learn", value, kLearned) == "all";
      },
      "Of conversations: replies, or all tokens (default replies)");
  flags.Value(
      "--tokens", "N",
      [&options](const std::string& value) { options.tokens = ParseInteger("--tokens", value, 1, int64_t{1} << 40); },
      "Tokens of an epoch, drawn from the text (default: all)");
  flags.Value(
      "--seq-len", "N",
      [&options](const std::string& value) {
        options.row_tokens = static_cast<int32_t>(ParseInteger("--seq-len", value, 8, 1 << 20));
      },
      help.rows);
  flags.Value(
      "--batch-size", "N",
      [&options](const std::string& value) {
        options.rows = static_cast<int32_t>(ParseInteger("--batch-size", value, 1, 1 << 16));
      },
      "Rows of --seq-len tokens in a step; short texts share one (default 8)");
  flags.Value(
      "--seed", "N", [&options](const std::string& value) { options.seed = ParseSeed("--seed", value); },
      "Of the order of the text and of the first weights (default 1)");
}

void AddStepFlags(FlagSet& flags, train::RunOptions& options, const std::string& eval_help) {
  AddNumber(flags, "--save-every", "STEPS", 1, &options.save_every,
            "Steps between checkpoints, at most so many are lost (default 200)");
  AddNumber(flags, "--log-every", "STEPS", 1, &options.log_every, "Steps between lines of metrics.jsonl (default 10)");
  AddNumber(flags, "--eval-every", "STEPS", 0, &options.eval_every, eval_help);
  AddNumber(flags, "--eval-texts", "N", 1, &options.eval_texts,
            "Texts that are held out, at most a tenth of all (default 24)");
}

void AddPrecisionFlag(FlagSet& flags, train::RunOptions& options) {
  flags.Value(
      "--precision", "TYPE",
      [&options](const std::string& value) { options.precision = ParseChoice("--precision", value, kPrecisions); },
      "Of matrix products: f32, bf16, or auto: bf16 where the CPU multiplies it fast (default auto)");
}

void AddTypeFlag(FlagSet& flags, train::RunOptions& options) {
  flags.Value(
      "--dtype", "TYPE",
      [&options](const std::string& value) {
        const std::string type = ParseChoice("--dtype", value, kTypes);
        options.dtype = type == "f32" ? DType::kF32 : type == "f16" ? DType::kF16 : DType::kBF16;
      },
      "Of the numbers in it: bf16, f16 or f32 (default bf16)");
}

void AddEvalTokensFlag(FlagSet& flags, int32_t& eval_tokens) {
  AddNumber(flags, "--eval-tokens", "N", 2, &eval_tokens, "Tokens that the base writes for each of them (default 64)");
}

void AddHeadFileFlag(FlagSet& flags, train::HeadFile& file) {
  flags.Value(
      "--format", "FORMAT",
      [&file](const std::string& value) {
        file = ParseChoice("--format", value, kFiles) == "pt" ? train::HeadFile::kTorch : train::HeadFile::kSafetensors;
      },
      "Of the heads' file: pt (what the authors' code reads) or safetensors (default pt)");
}

void RequireFlags(const FlagSet& flags, const std::string& command, std::initializer_list<const char*> required) {
  for (const char* flag : required) {
    if (!flags.Given(flag))
      throw UserError(fmt::format("{} is missing", flag), fmt::format("'{} --help' explains", command));
  }
}

std::string WithError(double value, double standard_error) {
  return fmt::format("{:.3f}{}", value, std::isfinite(standard_error) ? fmt::format(" +- {:.3f}", standard_error) : "");
}

void PrintSteps(const train::RunReport& report, const std::string& more) {
  if (report.tokens == 0) return Print(fmt::format("All {} steps were done already\n", report.all_steps));
  Print(fmt::format("{} of {} steps, {} tokens in {}{}, {:.0f} tokens/s\n", report.steps, report.all_steps,
                    report.tokens, train::TimeText(report.seconds), more,
                    static_cast<double>(report.tokens) / report.seconds));
}

base::Json JsonOfRun(const train::RunReport& report) {
  return {{"steps", report.steps},
          {"all_steps", report.all_steps},
          {"tokens", report.tokens},
          {"seconds", report.seconds},
          {"stopped", report.stopped}};
}

std::unique_ptr<parallel::Communicator> MakeRanks() {
  return parallel::MakeCommunicator(
      "auto", {.limit = kRankLimit, .on_abort = [](const std::string& text) { PrintError(ErrorText(text, "")); }});
}

RunConsole::RunConsole(train::RunOptions& options, parallel::Communicator& ranks) : ranks_(ranks) {
  options.stop = StopFlag();
  options.ranks = &ranks;
  options.warn = [](const std::string& text) { PrintWarnings({text}); };
  options.note = [this](const std::string& text) {
    progress_.Clear();
    PrintError(EscapedName(text) + "\n");
  };
  options.on_stage = [this](const std::string& stage, double share) { progress_.Update(share, stage); };
  options.on_progress = [this](const train::TrainProgress& now) {
    if (!now.text.empty()) words_ = now.text;
    const double share = static_cast<double>(now.step) / static_cast<double>(now.steps);
    progress_.Update(share, fmt::format("step {} of {}, {:.0f} tokens/s, {} left, {}", now.step, now.steps,
                                        now.tokens_per_second, train::TimeText(now.seconds_left), words_));
  };
}

int RunConsole::End(const train::RunReport& report, const std::function<void()>& print) {
  const int code = !report.stopped ? kExitOk : Interrupted() ? InterruptedExit() : kExitInterrupted;
  if (ranks_.rank() != 0) return code;
  progress_.Clear();
  print();
  if (report.stopped) PrintError("Stopped, and saved; --resume goes on.\n");
  return code;
}

}  // namespace hydrant::cli
