// SPDX-License-Identifier: Apache-2.0
// A read-only memory-mapped file. Weights are used where they lie: nothing is copied at load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace hydrant::base {

class MappedFile {
 public:
  // Throws FileError when the path is missing, not a regular file, or cannot be mapped.
  static std::shared_ptr<const MappedFile> Open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // Gives back the memory of the whole pages in `bytes` where these lie in a mapping of ours; they are read from the
  // file again when touched. Elsewhere nothing happens.
  static void Release(std::span<const uint8_t> bytes);

  // The file whose mapping holds that address; null: none, or not to be found out now. For a handler of the signal that
  // reading a mapping raises where the file has become shorter or its disk fails.
  static const char* PathAt(const void* address);

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size);

  std::string path_;
  const uint8_t* data_;
  size_t size_;
};

// Reads a whole small text file (configs, prompts, token lists).
// Throws FileError when it is missing or larger than `max_bytes`.
std::string ReadTextFile(const std::string& path, size_t max_bytes = size_t{256} << 20);

}  // namespace hydrant::base
