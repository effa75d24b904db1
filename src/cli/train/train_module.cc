// SPDX-License-Identifier: Apache-2.0
// The entry of hydrant-train.so.
#include <array>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/terminal.h"
#include "cli/train/train.h"
#include "parallel/mpi/make_communicator.h"

namespace hydrant::cli {
namespace {

constexpr std::array<Command, 3> kCommands = {{
    {"heads", "fit draft heads to a base model, from text", TrainHeads},
    {"medusa2", "train a base model and draft heads together (Medusa-2)", TrainMedusa2},
    {"base", "make a small base model and its tokenizer, from text", TrainBase},
}};

}  // namespace
}  // namespace hydrant::cli

// The module has copies of its own of everything, also of what a signal sets: who calls it holds signals back.
extern "C" __attribute__((visibility("default"))) int HydrantTrainMain(int count, const char* const* words) {
  hydrant::cli::InstallSignalHandlers();
  hydrant::cli::ReleaseSignals();
  int code = hydrant::cli::kExitOk;
  try {
    code =
        hydrant::cli::Dispatch("hydrant train", hydrant::cli::kCommands, std::vector<std::string>(words, words + count),
                               "Fit draft heads to a base model, or make one.\n");
  } catch (...) {
    code = hydrant::cli::ReportException();
  }
  hydrant::parallel::LeaveRanks(code);
  return code;
}
