// SPDX-License-Identifier: Apache-2.0
#include "cli/train/modules.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

namespace fs = std::filesystem;

// Beside the program, or where an installation keeps it.
constexpr std::array<std::string_view, 2> kPlaces = {".", "../lib/hydrant"};

constexpr const char* kHint =
    "install libtorch (Debian: apt install libtorch-dev libopenblas0-pthread) and build again; docs/training.md";

std::string Find(const Module& module) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::string_view place : kPlaces) {
    const fs::path file = (folder / place / module.file).lexically_normal();
    if (fs::is_regular_file(file, error)) return file.string();
  }
  throw UserError(
      std::string("this build has no ") + module.lacks + ": there is no " + module.file + " in " + folder.string(),
      module.hint);
}

}  // namespace

// Debian's libsentencepiece has a protobuf of its own in it, libtorch needs another version, and both export the same
// names. RTLD_DEEPBIND: what the module brings with it looks for names there first.
const Module kTrainModule = {"hydrant-train.so", "HydrantTrainMain", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND, "training",
                             kHint};
const Module kTokenizerModule = {"hydrant-tokenizer.so", "HydrantTrainTokenizer", RTLD_NOW | RTLD_LOCAL,
                                 "training of tokenizers", kHint};

void* EntryOf(const Module& module) {
  const std::string file = Find(module);
  void* handle = dlopen(file.c_str(), module.mode);
  if (handle == nullptr) throw FileError(file, std::string("cannot be loaded: ") + dlerror());
  void* entry = dlsym(handle, module.entry);
  if (entry == nullptr) {
    throw FileError(file, "is no part of this program: it has no function " + std::string(module.entry));
  }
  return entry;
}

std::string TrainTokenizerInModule(std::span<const std::string> files, const train::TokenizerOptions& options) {
  TokenizerJob job{.files = files, .options = &options};
  reinterpret_cast<TokenizerEntry>(EntryOf(kTokenizerModule))(&job);
  if (job.error) std::rethrow_exception(job.error);
  return job.model;
}

}  // namespace hydrant::cli
