// SPDX-License-Identifier: Apache-2.0
#include "cli/default_model.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

namespace fs = std::filesystem;

// build/hydrant, build/release/hydrant, bin/hydrant of an installation.
constexpr std::array<std::string_view, 3> kPlaces = {"../models", "../../models", "../share/hydrant/models"};

}  // namespace

DefaultModel FindDefaultModel() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::string looked;
  for (const std::string_view place : kPlaces) {
    const fs::path folder = (program.parent_path() / place).lexically_normal();
    if (fs::is_regular_file(folder / "tale-14m" / "config.json", error)) {
      return {(folder / "tale-14m").string(), (folder / "tale-14m-hydra-pp").string()};
    }
    looked += (looked.empty() ? "" : ", ") + folder.string();
  }
  throw UserError("no --model is given, and the embedded model is not in " + looked, "give --model DIR");
}

}  // namespace hydrant::cli
