// SPDX-License-Identifier: Apache-2.0
#include "cli/train/train.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/float_mode.h"
#include "cli/command.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "hydrant-train.so";
// Beside the program, or where an installation keeps it.
constexpr std::array<std::string_view, 2> kPlaces = {".", "../lib/hydrant"};

std::string FindModule() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::string_view place : kPlaces) {
    const fs::path module = (folder / place / kModule).lexically_normal();
    if (fs::is_regular_file(module, error)) return module.string();
  }
  throw UserError("this build has no training: there is no " + std::string(kModule) + " in " + folder.string(),
                  "install libtorch (Debian: apt install libtorch-dev libopenblas0-pthread) and build again; "
                  "docs/training.md");
}

// What the module does with `command` and its words.
int InModule(const char* command, const std::vector<std::string>& args) {
  const std::string module = FindModule();
  base::FlushDenormals();  // before libraries start threads of their own
  // Threads of OpenMP that wait by spinning stop each other where other work is on the machine: on two cores with two
  // compilers beside it a step took twenty times as long.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  // Debian's libsentencepiece has a protobuf of its own in it, libtorch needs another version, and both export the same
  // names. RTLD_DEEPBIND: what the module brings with it looks for names there first.
  void* handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (handle == nullptr) throw FileError(module, std::string("cannot be loaded: ") + dlerror());
  const auto entry = reinterpret_cast<TrainEntry>(dlsym(handle, kTrainEntry));
  if (entry == nullptr)
    throw FileError(module, "is no part of this program: it has no function " + std::string(kTrainEntry));
  std::vector<const char*> words = {command};
  for (const std::string& word : args) words.push_back(word.c_str());
  return entry(static_cast<int>(words.size()), words.data());
}

int Heads(const std::vector<std::string>& args) { return InModule("heads", args); }

constexpr std::array<Command, 2> kCommands = {{
    {"heads", "fit draft heads to a base model, from text", Heads},
    {"distill-data", "let the base model answer prompts, as text to learn from", DistillData},
}};

}  // namespace

int Train(const std::vector<std::string>& args) {
  return Dispatch("hydrant train", kCommands, args, "Fit draft heads to a base model.\n");
}

}  // namespace hydrant::cli
