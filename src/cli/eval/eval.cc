// SPDX-License-Identifier: Apache-2.0
#include "cli/eval/eval.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/paths.h"
#include "checkpoint/safetensors_writer.h"
#include "cli/command.h"
#include "cli/eval/ppl.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "eval/logits.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Write the model's numbers for a prompt as f32 safetensors: logits [T, V], hidden [T, D] (after the final norm), "
    "and\n"
    "with --draft head_logits [K, V]: row i is head i after the root (argmax of the last row) and the first i tokens "
    "of\n"
    "--path; where the path is shorter, each head's own argmax is followed.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant eval logits --model models/tale-14m --prompt-ids '[1, 334, 3476]' --out logits.safetensors\n"
    "  hydrant eval logits --model M --draft D --prompt-ids ids.json --path '[17, 4]' --out l.safetensors\n";

checkpoint::FloatTensor Named(const char* name, const Matrix& matrix) {
  return {name, {matrix.rows(), matrix.cols()}, matrix.data(), matrix.stride()};
}

struct LogitsOptions {
  EngineOptions engine;
  std::vector<int32_t> prompt_ids, path;
  std::vector<std::string> lists;  // what --prompt-ids and --path name, be it a list or a file
  std::string out;
};

// A file of a folder that is read is not replaced: it may be the weights.
void CheckSpares(const std::string& out, const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(out, error);
  if (folder.empty() || !base::IsThere(path)) return;
  if (!std::filesystem::equivalent(path.parent_path(), folder, error)) return;
  throw FileError(out, "exists, and lies in a folder that is read", "name another file, or remove it yourself");
}

void CheckIsNoInput(const LogitsOptions& options) {
  std::vector<std::string> files = options.lists;
  files.insert(files.end(), {options.engine.draft_vocab, options.engine.draft_vocab_text});
  for (const std::string& file : files) {
    std::error_code error;  // where one of them is not there
    if (!std::filesystem::equivalent(options.out, file, error) || error) continue;
    throw FileError(options.out, "is a file that is read", "name another file for --out");
  }
}

bool ParseFlags(const std::vector<std::string>& args, LogitsOptions& options) {
  FlagSet flags("hydrant eval logits", kDescription, kExamples);
  const auto ids = [&](const char* flag, std::vector<int32_t>* target, const std::string& help) {
    const auto set = [flag, target, &options](const std::string& value) {
      *target = ParseIdList(flag, value, true);
      options.lists.push_back(value);
    };
    flags.Value(flag, "LIST|FILE", set, help);
  };
  AddModelFlags(flags, options.engine);
  ids("--prompt-ids", &options.prompt_ids, "Token ids such as 1,2 or [1, 2], used exactly as given");
  ids("--path", &options.path, "Drafted tokens after the root");
  flags.Text("--out", "FILE", &options.out, "The safetensors file to write; in a folder that is read a new one");
  AddMachineFlags(flags, options.engine);
  if (!flags.Parse(args)) return false;
  for (const char* flag : {"--model", "--prompt-ids", "--out"}) {
    if (!flags.Given(flag)) throw UserError(fmt::format("{} is missing", flag));
  }
  CheckNotEmpty(flags, "--model", options.engine.model);
  CheckNotEmpty(flags, "--out", options.out);
  CheckNotEmpty(flags, "--cpu-target", options.engine.cpu_target);
  if (!options.engine.more_drafts.empty()) {
    throw UserError("--draft is given several times, and logits are those of one drafter", "give --draft DIR once");
  }
  for (const char* flag : {"--path", "--head-weights"}) {
    if (!flags.Given(flag) || flags.Given("--draft")) continue;
    throw UserError(std::string(flag) + " needs draft heads", "give --draft DIR");
  }
  CheckFolders(options.engine);
  CheckSpares(options.out, options.engine.model);
  CheckSpares(options.out, options.engine.draft);
  CheckIsNoInput(options);
  return true;
}

int Logits(const std::vector<std::string>& args) {
  LogitsOptions options;
  if (!ParseFlags(args, options)) return kExitOk;
  options.engine.load_tokenizer = false;
  options.engine.on_pack = PackProgress();
  options.engine.stop = StopFlag();
  const std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(options.engine);
  PrintWarnings(loaded->info.warnings);
  Progress progress("reading");
  const eval::EvalLogitsResult result =
      eval::EvalLogits(*loaded, options.prompt_ids, options.path, [&progress](double share) {
        if (Interrupted()) throw Interruption();
        progress.Update(share);
      });
  progress.Clear();
  std::vector<checkpoint::FloatTensor> tensors = {Named("logits", result.logits), Named("hidden", result.hidden)};
  if (loaded->drafter) tensors.push_back(Named("head_logits", result.head_logits));
  checkpoint::WriteSafetensors(options.out, tensors);
  for (const checkpoint::FloatTensor& tensor : tensors) {
    Print(fmt::format("{}: {} {}\n", options.out, tensor.name, ShapeString(tensor.shape)));
  }
  return kExitOk;
}

constexpr std::array<Command, 2> kCommands = {{
    {"logits", "write logits and hidden states of a prompt", Logits},
    {"ppl", "perplexity of a text in a weight format", EvalPpl},
}};

}  // namespace

int Eval(const std::vector<std::string>& args) {
  return Dispatch("hydrant eval", kCommands, args, "Numbers of a model.\n");
}

}  // namespace hydrant::cli
