// SPDX-License-Identifier: Apache-2.0
#include "cli/run/chat_history.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"

namespace hydrant::cli {
namespace {

constexpr size_t kMostEntries = 1000, kMostBytes = size_t{1} << 20, kMostOfOne = size_t{32} << 10;

// Files and folders made meanwhile are their owner's alone.
class OwnersOnly {
 public:
  OwnersOnly() : before_(umask(0077)) {}
  ~OwnersOnly() { umask(before_); }
  OwnersOnly(const OwnersOnly&) = delete;
  OwnersOnly& operator=(const OwnersOnly&) = delete;

 private:
  mode_t before_;
};

}  // namespace

std::string HistoryPath() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && std::string_view(state).starts_with('/')) return std::string(state) + "/hydrant/history";
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::string(home) + "/.local/state/hydrant/history";
}

std::vector<std::string> ReadHistory(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  std::istringstream lines(base::ReadTextFile(path, 2 * kMostBytes));
  std::vector<std::string> entries;
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::ParseJson(line, path);
    if (!json.is_string()) throw FileError(path, "has a line that is no JSON string, expected a history of chats");
    entries.push_back(json.get<std::string>());
  }
  return entries;
}

void WriteHistory(const std::string& path, const std::vector<std::string>& entries) {
  std::vector<std::string> lines;
  size_t bytes = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend() && lines.size() < kMostEntries; ++entry) {
    if (entry->size() > kMostOfOne) continue;
    lines.push_back(base::DumpJson(*entry) + "\n");
    bytes += lines.back().size();
    if (bytes <= kMostBytes) continue;
    lines.pop_back();
    break;
  }
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += *line;
  const OwnersOnly rights;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  base::AtomicFile file(path);
  file.Write(text.data(), text.size());
  file.Keep();
}

}  // namespace hydrant::cli
