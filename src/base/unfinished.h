// SPDX-License-Identifier: Apache-2.0
// Folders that are being written: how those of a program that was killed are told from those of one that still runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::base {

// A file in the folder, locked for as long as this lives: the system takes the lock from a program that ends, however.
class UnfinishedMark {
 public:
  static constexpr const char* kName = ".hydrant-unfinished";

  // Where the file cannot be made or locked (a file system without locks), the folder is like any other: nothing
  // removes it.
  explicit UnfinishedMark(const std::string& folder);
  ~UnfinishedMark();
  UnfinishedMark(const UnfinishedMark&) = delete;
  UnfinishedMark& operator=(const UnfinishedMark&) = delete;

  // Takes the file out of the folder, which lies there now. It is locked on, so that nobody takes it for a leftover.
  void Remove(const std::string& folder);

 private:
  int fd_ = -1;
};

struct Leftover {
  std::string path;
  uint64_t bytes = 0;
};

// Removes what programs that were killed have left of folders for `target`: folders beside it with the name that
// MakeBeside gives, of the same user, holding the mark with that name, nothing locked, and files only.
std::vector<Leftover> RemoveLeftovers(const std::string& target);

// An empty folder `target`.XXXXXX. Throws FileError.
std::string MakeBeside(const std::string& target);

}  // namespace hydrant::base
