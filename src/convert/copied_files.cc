// SPDX-License-Identifier: Apache-2.0
#include "convert/copied_files.h"

#include <array>
#include <filesystem>

#include "base/paths.h"
#include "hydrant/error.h"

namespace hydrant::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 13> kModelFiles = {"config.json",
                                                     "generation_config.json",
                                                     "tokenizer.json",
                                                     "tokenizer.model",
                                                     "tokenizer_config.json",
                                                     "added_tokens.json",
                                                     "special_tokens_map.json",
                                                     "chat_template.jinja",
                                                     "chat_template.json",
                                                     "trees.json",
                                                     "LICENSE",
                                                     "LICENSE.txt",
                                                     "README.md"};
constexpr size_t kOfHeads = 4;  // the last ones

}  // namespace

std::span<const char* const> ModelFiles() { return kModelFiles; }
std::span<const char* const> HeadFiles() { return std::span<const char* const>(kModelFiles).last(kOfHeads); }

void CopyFiles(std::span<const char* const> names, const std::string& from, const std::string& to) {
  for (const char* name : names) {
    const fs::path source = fs::path(from) / name;
    std::error_code error;
    if (!base::IsThere(source)) continue;
    fs::copy_file(source, fs::path(to) / name, error);
    if (error) throw FileError(source.string(), "cannot be copied to the new folder: " + error.message());
  }
}

std::string LastName(const std::string& folder) {
  std::error_code ignored;
  const fs::path path = fs::weakly_canonical(folder, ignored);
  return path.filename().string();
}

}  // namespace hydrant::convert
