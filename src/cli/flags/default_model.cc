// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/default_model.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/flags/engine_flags.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

namespace fs = std::filesystem;

// build/hydrant, build/release/hydrant, bin/hydrant of an installation (HYDRANT_MODELS_FROM_BIN: by the folders that it
// was configured with); then a folder that was copied together.
constexpr std::array<std::string_view, 7> kPlaces = {
    "../models", "../../models", HYDRANT_MODELS_FROM_BIN, "../share/hydrant/models", "share/hydrant/models", "models",
    "."};

}  // namespace

DefaultModel FindDefaultModel() {
  std::error_code error;
  return FindDefaultModel(fs::read_symlink("/proc/self/exe", error).parent_path().string());
}

DefaultModel FindDefaultModel(const std::string& program_folder) {
  std::error_code error;
  std::string looked;
  for (const std::string_view place : kPlaces) {
    const fs::path folder = (fs::path(program_folder) / place).lexically_normal();
    if (fs::is_regular_file(folder / "tale-14m" / "config.json", error)) {
      return {(folder / "tale-14m").string(), (folder / "tale-14m-hydra-pp").string()};
    }
    const std::string item = (looked.empty() ? "" : ", ") + folder.string();
    if (!looked.ends_with(item)) looked += item;  // an installation's place and a copied folder's are often the same
  }
  throw UserError("no --model is given, and the embedded model is not in " + looked, "give --model DIR");
}

void ChooseModel(EngineOptions& options) {
  if (!options.model.empty()) {
    CheckFolders(options);
    return;
  }
  const DefaultModel found = FindDefaultModel();
  options.model = found.model;
  options.draft = found.draft;
  PrintError(fmt::format("No --model given: using {} with {}\n", found.model, found.draft));
}

}  // namespace hydrant::cli
