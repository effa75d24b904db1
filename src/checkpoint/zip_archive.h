// SPDX-License-Identifier: Apache-2.0
// A zip file over mapped bytes: stored entries are used where they lie. Read by hand because Debian 12's minizip
// (1.1-8) does not apply zip64 fields of the directory on 64-bit machines, so files above 4 GB would be out of its
// reach.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_source.h"

namespace hydrant::checkpoint {

class ZipArchive {
 public:
  // Reads the directory. Throws FileError for what is no complete zip file, and for entries that are compressed,
  // encrypted or named twice. zip64 is read.
  explicit ZipArchive(const FileBytes& file);

  bool Has(const std::string& name) const { return entries_.contains(name); }
  std::vector<std::string> Names() const;  // sorted

  // The entry's bytes in the file. Their CRC is not checked: that would read every weight at load.
  std::span<const uint8_t> Stored(const std::string& name) const;
  // A small entry as text, its CRC checked.
  std::string_view Read(const std::string& name, uint64_t max_bytes) const;

 private:
  struct Directory {
    uint64_t offset = 0, size = 0, entries = 0;
  };
  struct Entry {
    uint64_t local_offset = 0, size = 0;
    uint32_t crc = 0;
  };

  uint64_t FindEndRecord() const;
  Directory FindDirectory() const;
  void ReadEntry(uint64_t* position, uint64_t end);
  uint64_t Number(uint64_t offset, size_t bytes) const;
  std::string_view Text(uint64_t offset, uint64_t length) const;
  [[noreturn]] void Fail(const std::string& problem, const std::string& hint = {}) const;
  [[noreturn]] void FailDamaged() const;

  FileBytes file_;
  uint64_t data_end_ = 0;  // entries lie before the directory
  std::map<std::string, Entry> entries_;
};

}  // namespace hydrant::checkpoint
