// SPDX-License-Identifier: Apache-2.0
// Flags that all training runs have, and what a terminal sees of a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "base/json_fwd.h"
#include "cli/flags/flags.h"
#include "cli/terminal/progress.h"
#include "parallel/communicator.h"
#include "train/run_options.h"
#include "train/write_heads.h"

namespace hydrant::cli {

// Helps that differ from run to run.
struct TextHelp {
  const char* rows;        // of --seq-len
  const char* chat;        // of --template
  const char* overwrites;  // of --force
};

// --data, --out, --resume, --force, --template, --learn, --tokens, --seq-len, --batch-size, --seed.
void AddTextFlags(FlagSet& flags, train::RunOptions& options, const TextHelp& help);
// --save-every, --log-every, --eval-every, --eval-texts.
void AddStepFlags(FlagSet& flags, train::RunOptions& options, const std::string& eval_help);
void AddPrecisionFlag(FlagSet& flags, train::RunOptions& options);
void AddTypeFlag(FlagSet& flags, train::RunOptions& options);
// --eval-tokens and --format, of runs that train heads.
void AddEvalTokensFlag(FlagSet& flags, int32_t& eval_tokens);
void AddHeadFileFlag(FlagSet& flags, train::HeadFile& file);

// Throws UserError naming the first of them that is not given.
void RequireFlags(const FlagSet& flags, const std::string& command, std::initializer_list<const char*> required);

// "3.104 +- 0.021"; without an error that is known the number alone.
std::string WithError(double value, double standard_error);
// Prints the last line of a report. `more`: behind the time.
void PrintSteps(const train::RunReport& report, const std::string& more);
base::Json JsonOfRun(const train::RunReport& report);

// The ranks of this program. To be called first of all, so that what is wrong with flags is told once.
std::unique_ptr<parallel::Communicator> MakeRanks();

// Shows what a run says while it goes on.
class RunConsole {
 public:
  // Sets the functions of `options`, which call this object.
  RunConsole(train::RunOptions& options, parallel::Communicator& ranks);
  RunConsole(const RunConsole&) = delete;
  RunConsole& operator=(const RunConsole&) = delete;

  // The exit code of a run that has ended. `print` is called on the first rank.
  int End(const train::RunReport& report, const std::function<void()>& print);

 private:
  void TellInFile(const std::string& note);

  Progress progress_{"training"};
  parallel::Communicator& ranks_;
  std::string words_;
  std::chrono::steady_clock::time_point last_told_ = std::chrono::steady_clock::now();
};

}  // namespace hydrant::cli
