// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: it is written under another name beside its own, and renamed at the end.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace hydrant::base {

class AtomicFile {
 public:
  // Throws FileError, as the others do: no such folder, a full device, `path` is there and not a regular file. Where it
  // is a link, the file that it leads to is meant.
  explicit AtomicFile(const std::string& path);
  // Removes what was written, unless it was kept.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(const void* bytes, size_t size);
  // Everything is written: the file takes its name, in place of one that has it.
  void Keep();

 private:
  [[noreturn]] void Fail(const char* what) const;

  std::string target_;
  std::string name_;
  std::FILE* file_ = nullptr;
};

}  // namespace hydrant::base
