// SPDX-License-Identifier: Apache-2.0
// Which files of a folder make its tokenizer.
#include <filesystem>

#include "base/mapped_file.h"
#include "base/paths.h"
#include "base/placeholder.h"
#include "hydrant/error.h"
#include "tokenizer/loaders.h"

namespace hydrant::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJsonName = "tokenizer.json";
constexpr const char* kModelName = "tokenizer.model";

}  // namespace

bool HasTokenizer(const std::string& folder) {
  return base::IsThere(fs::path(folder) / kJsonName) || base::IsThere(fs::path(folder) / kModelName);
}

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path) {
  fs::path file = path;
  std::error_code error;
  const bool of_folder = fs::is_directory(file, error);
  if (of_folder) {
    if (!HasTokenizer(path)) {
      throw FileError(path, "has no tokenizer.json and no tokenizer.model",
                      "name a folder or a file with the tokenizer of the model");
    }
    const fs::path json = file / kJsonName;
    file = base::IsThere(json) ? json : file / kModelName;
  }
  const std::string name = file.string();
  if (!base::IsThere(file)) throw FileError(name, "there is no such file or folder", base::MissingPathHint(name));
  const std::string text = base::ReadTextFile(name);
  base::RefusePlaceholder(text, name);
  ConfigRules rules = ReadConfigRules(file.parent_path().string());
  rules.of_folder = of_folder;
  if (file.extension() == ".json") return LoadTokenizerJson(text, name, rules);
  if (file.extension() == ".model") return LoadSentencePiece(text, name, rules);
  throw FileError(name, "is no tokenizer file, expected tokenizer.json or tokenizer.model");
}

}  // namespace hydrant::tokenizer
