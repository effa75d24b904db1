// SPDX-License-Identifier: Apache-2.0
#include "cli/train/run_flags.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "base/text_parts.h"
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

// Set by MakeRanks: what is found while flags are read is told by one rank.
bool is_first_rank = true;

bool HasTextEnding(const std::filesystem::path& path) {
  std::string type = path.extension().string();
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type == ".txt" || type == ".json" || type == ".jsonl";
}

bool IsBlankFile(const std::string& path) {
  const auto file = base::MappedFile::Open(path);
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  return text.find_first_not_of(base::kBlank) == std::string_view::npos;
}

// Finds the files of texts in a folder and below, also where links lead, but for the run's own in --out.
class FolderOfTexts {
 public:
  FolderOfTexts(std::string path, const std::string& out) : path_(std::move(path)) {
    std::error_code error;
    out_ = std::filesystem::weakly_canonical(out.empty() ? "." : out, error);
    if (!out_.has_filename()) out_ = out_.parent_path();  // "heads/"
    has_out_ = !out.empty() && !error;
  }

  std::vector<std::string> Find() {
    AddFolder(path_);
    std::string where = "holds no file that ends in .txt, .json or .jsonl";
    if (num_blank_ > 0) where += fmt::format(", but for {} without text", num_blank_);
    if (skips_out_) where += ", but for those in --out, which are the run's own";
    if (found_.empty()) throw FileError(path_, where, skips_out_ ? "name another folder with --out" : "");
    return std::move(found_);
  }

 private:
  bool IsInOut(const std::filesystem::path& folder) const {
    return has_out_ && std::mismatch(out_.begin(), out_.end(), folder.begin(), folder.end()).first == out_.end();
  }

  void AddFolder(const std::filesystem::path& folder) {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(folder, error);
    if (!error && IsInOut(real)) {
      skips_out_ = true;
      return;
    }
    if (!error && !seen_.insert(real.string()).second) return;  // a link leads back, or here by another way
    std::vector<std::filesystem::path> entries;
    for (auto entry = std::filesystem::directory_iterator(folder, error);
         !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      entries.push_back(entry->path());
    }
    if (error) throw FileError(folder.string(), "cannot be read: " + error.message());
    std::ranges::sort(entries);  // the order in which a folder lists its files is another on each disk
    for (const std::filesystem::path& entry : entries) {
      if (base::IsFolder(entry)) {
        AddFolder(entry);
      } else if (HasTextEnding(entry)) {
        AddFile(entry.string());
      }
    }
  }

  void AddFile(const std::string& path) {
    if (!IsBlankFile(path)) {
      found_.push_back(path);
      return;
    }
    ++num_blank_;
    if (is_first_rank) PrintWarnings({path + ": is empty, and is left out"});
  }

  const std::string path_;
  std::filesystem::path out_;
  bool has_out_ = false, skips_out_ = false;
  int64_t num_blank_ = 0;
  std::set<std::string> seen_;
  std::vector<std::string> found_;
};

// The path, or what a folder holds.
void AddFiles(const std::string& path, train::RunOptions& options) {
  if (!base::IsFolder(path)) return options.data.push_back(path);
  std::vector<std::string> found = FolderOfTexts(path, options.out).Find();
  std::ranges::sort(found);  // one order of all, whichever folder they are in
  options.data.insert(options.data.end(), found.begin(), found.end());
}

template <typename T>
void AddNumber(FlagSet& flags, const char* flag, const char* kind, int64_t min, T* target, const std::string& help) {
  flags.Value(
      flag, kind, [=](const std::string& value) { *target = static_cast<T>(ParseInteger(flag, value, min, 1 << 30)); },
      help);
}

}  // namespace

void AddTextFlags(FlagSet& flags, train::RunOptions& options, const TextHelp& help) {
  // Flags are read in this order, and which files are data depends on --out.
  const auto paths = std::make_shared<std::vector<std::string>>();
  flags.Repeated(
      "--data", "PATH", [paths](const std::string& value) { paths->push_back(value); },
      "Text, or conversations as JSON (ShareGPT, messages, Alpaca); of a folder all files in and below it that end in "
      ".txt, .json or .jsonl, but for those in --out; may be given several times");
  flags.Value(
      "--out", "DIR",
      [paths, &options](const std::string& value) {
        options.out = value;
        for (const std::string& path : *paths) AddFiles(path, options);
      },
      "Folder to make");
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
  auto ranks = parallel::MakeCommunicator(
      "auto", {.limit = kRankLimit, .on_abort = [](const std::string& text) { PrintError(ErrorText(text, "")); }});
  is_first_rank = ranks->rank() == 0;
  return ranks;
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
    const std::string note = fmt::format("step {} of {}, {:.0f} tokens/s, {} left, {}", now.step, now.steps,
                                         now.tokens_per_second, train::TimeText(now.seconds_left), words_);
    progress_.Update(share, note);
    TellInFile(note);
  };
}

// Logs of jobs have no terminal.
void RunConsole::TellInFile(const std::string& note) {
  constexpr std::chrono::seconds kBetween{30};
  if (isatty(STDERR_FILENO) == 1) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_told_ < kBetween) return;
  last_told_ = now;
  PrintError(note + "\n");
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
