// SPDX-License-Identifier: Apache-2.0
// What was typed in earlier chats: a file of JSON strings, one a line, that only its owner may read.
#pragma once

#include <string>
#include <vector>

namespace hydrant::cli {

// $XDG_STATE_HOME/hydrant/history, or ~/.local/state/hydrant/history; empty where neither is known.
std::string HistoryPath();

// Oldest first; none where there is no file. Throws FileError for a file that is something else.
std::vector<std::string> ReadHistory(const std::string& path);

// Keeps the last 1000 entries, 1 MB at most; entries over 32 KB are left out. Makes the folder where it is missing.
void WriteHistory(const std::string& path, const std::vector<std::string>& entries);

}  // namespace hydrant::cli
