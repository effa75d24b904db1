// SPDX-License-Identifier: Apache-2.0
// What a folder holds, by its files and configs.
#pragma once

#include <string>

namespace hydrant::load {

struct FolderKind {
  bool base = false, heads = false, tokenizer = false;
};

// Reads no weights but headers. A folder that names heads in its config, or holds files with heads' names, counts as
// heads though they may turn out to be unusable. Throws FileError for a config.json that is no JSON.
FolderKind KindOf(const std::string& folder);
// Does EngineOptions::draft mean a model there, and not heads?
bool IsDraftModel(const std::string& folder);

}  // namespace hydrant::load
