// SPDX-License-Identifier: Apache-2.0
#include "base/unfinished.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/usual_rights.h"
#include "hydrant/error.h"

namespace hydrant::base {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRandomCharacters = 6;  // of mkdtemp

// The mark names its folder: one in a finished folder that was renamed since is none.
bool Names(int fd, const std::string& name) {
  char text[4096];
  const ssize_t got = pread(fd, text, sizeof(text), 0);
  return got >= 0 && std::string_view(text, static_cast<size_t>(got)) == name;
}

bool MayBeOurs(const fs::path& folder, const std::string& target_name) {
  const std::string name = folder.filename().string();
  if (name.size() != target_name.size() + 1 + kRandomCharacters || !name.starts_with(target_name + ".")) return false;
  struct stat info {};
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

// Bytes of its files; nothing where it holds anything else.
std::optional<uint64_t> BytesOfFiles(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_symlink(error) || !entry.is_regular_file(error)) return std::nullopt;
    bytes += entry.file_size(error);
  }
  return error ? std::nullopt : std::optional(bytes);
}

std::optional<Leftover> Remove(const fs::path& folder) {
  const int fd = open((folder / UnfinishedMark::kName).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  std::optional<Leftover> removed;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && Names(fd, folder.filename().string())) {
    const std::optional<uint64_t> bytes = BytesOfFiles(folder);
    std::error_code error;
    if (bytes && fs::remove_all(folder, error) > 0 && !error) removed = {folder.string(), *bytes};
  }
  close(fd);
  return removed;
}

}  // namespace

// Locked before it has its name: whoever finds it unlocked finds a leftover.
UnfinishedMark::UnfinishedMark(const std::string& folder) {
  const std::string name = fs::path(folder).filename().string();
  const std::string file = folder + "/" + kName, unlocked = file + "-new";
  fd_ = open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd_ < 0) return;
  const bool made = flock(fd_, LOCK_EX | LOCK_NB) == 0 &&
                    write(fd_, name.data(), name.size()) == static_cast<ssize_t>(name.size()) &&
                    rename(unlocked.c_str(), file.c_str()) == 0;
  if (!made) unlink(unlocked.c_str());
}

UnfinishedMark::~UnfinishedMark() {
  if (fd_ >= 0) close(fd_);
}

void UnfinishedMark::Remove(const std::string& folder) {
  unlink((folder + "/" + kName).c_str());  // not there: it could not be made
}

std::vector<Leftover> RemoveLeftovers(const std::string& target) {
  const fs::path path(target);
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    if (MayBeOurs(entry.path(), path.filename().string())) folders.push_back(entry.path());
  }
  std::vector<Leftover> removed;
  for (const fs::path& folder : folders) {
    if (const auto leftover = Remove(folder)) removed.push_back(*leftover);
  }
  return removed;
}

std::string MakeBeside(const std::string& target) {
  std::string pattern = target + ".XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    throw FileError(target, std::string("cannot be created: ") + std::strerror(errno));
  }
  chmod(pattern.c_str(), UsualRights(0777));
  return pattern;
}

}  // namespace hydrant::base
