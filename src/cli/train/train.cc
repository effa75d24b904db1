// SPDX-License-Identifier: Apache-2.0
#include "cli/train/train.h"

#include <array>
#include <cstdlib>

#include "base/float_mode.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "cli/train/modules.h"

namespace hydrant::cli {
namespace {

// What the module does with `command` and its words.
int InModule(const char* command, const std::vector<std::string>& args) {
  base::FlushDenormals();  // before libraries start threads of their own
  // Threads of OpenMP that wait by spinning stop each other where other work is on the machine: on two cores with two
  // compilers beside it a step took twenty times as long.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  // Waking one that sleeps takes longer than most of these waits: some 0.1 ms of spinning before is 11 % faster on two
  // cores without other work.
  setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0);
  const auto entry = reinterpret_cast<TrainEntry>(EntryOf(kTrainModule));
  std::vector<const char*> words = {command};
  for (const std::string& word : args) words.push_back(word.c_str());
  HoldSignals();
  if (Interrupted()) return InterruptedExit();
  return entry(static_cast<int>(words.size()), words.data());
}

int Heads(const std::vector<std::string>& args) { return InModule("heads", args); }
int Medusa2(const std::vector<std::string>& args) { return InModule("medusa2", args); }
int Base(const std::vector<std::string>& args) { return InModule("base", args); }

constexpr std::array<Command, 4> kCommands = {{
    {"heads", "fit draft heads to a base model, from text", Heads},
    {"medusa2", "train a base model and draft heads together (Medusa-2)", Medusa2},
    {"base", "make a small base model and its tokenizer, from text", Base},
    {"distill-data", "let the base model answer prompts, as text to learn from", DistillData},
}};

}  // namespace

int Train(const std::vector<std::string>& args) {
  return Dispatch("hydrant train", kCommands, args, "Fit draft heads to a base model, or make one.\n");
}

}  // namespace hydrant::cli
