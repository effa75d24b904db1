// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "base/nearest.h"
#include "cli/bench/bench.h"
#include "cli/commands/convert.h"
#include "cli/commands/detokenize.h"
#include "cli/commands/inspect.h"
#include "cli/commands/tokenize.h"
#include "cli/commands/tree.h"
#include "cli/eval/eval.h"
#include "cli/flags/foreign_words.h"
#include "cli/run/run.h"
#include "cli/serve/serve.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/terminal.h"
#include "cli/train/train.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"

namespace hydrant::cli {
namespace {

constexpr std::array<Command, 10> kCommands = {{
    {"run", "generate text, or chat", Run},
    {"serve", "answer requests over HTTP, as OpenAI's API has it", Serve},
    {"inspect", "say what a checkpoint, heads folder, tensor file or tokenizer is", Inspect},
    {"convert", "pack weights, or write heads as another project reads them", Convert},
    {"train", "fit draft heads to a base model", Train},
    {"tree", "show and convert draft trees", Tree},
    {"tokenize", "text to token ids", Tokenize},
    {"detokenize", "token ids to text", Detokenize},
    {"eval", "numbers of a model: logits, perplexity", Eval},
    {"bench", "how fast, beside how fast it could be", Bench},
}};

constexpr const char* kOverview =
    "Hydrant: speculative decoding on CPUs with draft heads (Hydra, Medusa, EAGLE and others) or a\n"
    "draft model, exact by default.\n";

int PrintVersion() {
  Print(fmt::format("hydrant {}\ncpu target: {}\n", HYDRANT_VERSION, kernels::KernelsFor("auto").name));
  return kExitOk;
}

std::string CommandList(const std::string& program, std::span<const Command> commands, const std::string& overview) {
  std::string text = fmt::format("{}\nUsage: {} COMMAND [FLAGS]\n\nCommands:\n", overview, program);
  for (const Command& command : commands) text += fmt::format("  {:12} {}\n", command.name, command.summary);
  return text + fmt::format("\n'{} COMMAND --help' lists a command's flags, with examples.\n", program);
}

// For a word that is no command of ours; `nearest` is what a slip of the hand would mean, empty where none is near.
std::string HintForFirstWord(const std::vector<std::string>& args, const std::string& nearest) {
  const std::string& word = args[0];
  const bool is_flag = word.starts_with("-");
  if (!is_flag || args.size() == 1) {
    std::string foreign = ForeignCommandHint(word);
    if (!foreign.empty()) return foreign;
  }
  if (!nearest.empty()) return nearest;
  if (is_flag) return "a command comes first: hydrant run " + word + (args.size() > 1 ? " ..." : "");
  std::error_code error;
  if (std::filesystem::exists(word, error) || word.find('/') != std::string::npos) {
    return fmt::format("a command comes first: hydrant run --model '{0}', or hydrant inspect '{0}'", word);
  }
  if (word.find(' ') != std::string::npos) return "a command comes first: hydrant run --prompt '...'";
  return {};
}

}  // namespace

int Dispatch(const std::string& program, std::span<const Command> commands, const std::vector<std::string>& args,
             const std::string& overview) {
  const std::string help_hint = fmt::format("'{} --help' lists the commands", program);
  if (args.empty()) throw UserError(fmt::format("{}: no command is given", program), help_hint);
  std::vector<std::string> rest(args.begin() + 1, args.end());
  std::string name = args[0];
  if (name == "help" && !rest.empty()) {  // "hydrant help bench step"
    name = rest[0];
    rest.erase(rest.begin());
    rest.emplace_back("--help");
  }
  if (name == "--help" || name == "-h" || name == "help") {
    Print(CommandList(program, commands, overview));
    return kExitOk;
  }
  std::vector<std::string_view> words = {"--help", "help"};
  if (program == "hydrant") words.emplace_back("--version");
  for (const Command& command : commands) {
    if (command.name == name) return command.run(rest);
    words.push_back(command.name);
  }
  const bool is_flag = name.starts_with("-");
  std::string hint = base::Nearest(name, words);
  if (!hint.empty()) hint = "did you mean " + hint + "?";
  if (program == "hydrant") hint = HintForFirstWord(args, hint);
  throw UserError(fmt::format("unknown {} '{}'", is_flag ? "flag" : "command", name), hint.empty() ? help_hint : hint);
}

int Main(const std::vector<std::string>& args) {
  InstallSignalHandlers();
  try {
    if (!args.empty() && (args[0] == "--version" || args[0] == "-V")) {
      if (args.size() > 1) throw UserError(fmt::format("unexpected argument '{}'", args[1]));
      return PrintVersion();
    }
    return Dispatch("hydrant", kCommands, args,
                    std::string(kOverview) + "'hydrant --version' prints the version and the active CPU target.\n");
  } catch (...) {
    return ReportException();
  }
}

}  // namespace hydrant::cli
