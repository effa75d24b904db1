// SPDX-License-Identifier: Apache-2.0
// Names of fields after PKWARE's APPNOTE, sections 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to 4.3.16 (end).
#include "checkpoint/zip_archive.h"

#include <algorithm>
#include <array>
#include <utility>

#include "checkpoint/crc32.h"
#include "hydrant/error.h"

namespace hydrant::checkpoint {
namespace {

constexpr std::string_view kLocalMagic = "PK\x03\x04";
constexpr std::string_view kEntryMagic = "PK\x01\x02";
constexpr std::string_view kEndMagic = "PK\x05\x06";
constexpr std::string_view kEnd64Magic = "PK\x06\x06";
constexpr std::string_view kLocator64Magic = "PK\x06\x07";
constexpr uint64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint64_t kMaxComment = 0xFFFF;
constexpr uint64_t kIn64 = 0xFFFFFFFF;        // a 32-bit field that says: look into the zip64 field
constexpr uint64_t kEncryptedFlags = 0x2041;  // bit 0 encrypted, 6 strongly, 13 headers masked

}  // namespace

ZipArchive::ZipArchive(const FileBytes& file) : file_(file) {
  const Directory directory = FindDirectory();
  data_end_ = directory.offset;
  uint64_t position = directory.offset;
  const uint64_t end = directory.offset + directory.size;
  if (directory.entries > directory.size / kEntryBytes) FailDamaged();
  for (uint64_t i = 0; i < directory.entries; ++i) ReadEntry(&position, end);
  if (position != end) FailDamaged();
}

// A little-endian number; the caller has checked nothing.
uint64_t ZipArchive::Number(uint64_t offset, size_t bytes) const {
  const std::string_view text = Text(offset, bytes);
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(text[i]);
  return value;
}

std::string_view ZipArchive::Text(uint64_t offset, uint64_t length) const {
  if (offset > file_.bytes.size() || length > file_.bytes.size() - offset) FailDamaged();
  return {reinterpret_cast<const char*>(file_.bytes.data()) + offset, length};
}

// The end record is the last thing in the file but for a comment of up to 64 KB.
uint64_t ZipArchive::FindEndRecord() const {
  const uint64_t size = file_.bytes.size();
  for (uint64_t comment = 0; comment <= kMaxComment && comment + kEndBytes <= size; ++comment) {
    const uint64_t offset = size - kEndBytes - comment;
    if (Text(offset, 4) == kEndMagic && Number(offset + 20, 2) == comment) return offset;
  }
  Fail("is not a complete zip file: its directory is missing", "the file is truncated; download it again");
}

ZipArchive::Directory ZipArchive::FindDirectory() const {
  const uint64_t end = FindEndRecord();
  Directory directory{Number(end + 16, 4), Number(end + 12, 4), Number(end + 10, 2)};
  uint64_t limit = end;
  if (end >= kLocator64Bytes && Text(end - kLocator64Bytes, 4) == kLocator64Magic) {
    limit = Number(end - kLocator64Bytes + 8, 8);
    if (limit > end - kLocator64Bytes || end - kLocator64Bytes - limit < kEnd64Bytes || Text(limit, 4) != kEnd64Magic) {
      FailDamaged();
    }
    directory = {Number(limit + 48, 8), Number(limit + 40, 8), Number(limit + 32, 8)};
  }
  if (directory.offset > limit || directory.size > limit - directory.offset) FailDamaged();
  return directory;
}

void ZipArchive::ReadEntry(uint64_t* position, uint64_t end) {
  const uint64_t at = *position;
  if (end - at < kEntryBytes || Text(at, 4) != kEntryMagic) FailDamaged();
  const uint64_t name_bytes = Number(at + 28, 2);
  const uint64_t extra_bytes = Number(at + 30, 2);
  const uint64_t total = kEntryBytes + name_bytes + extra_bytes + Number(at + 32, 2);
  if (total > end - at) FailDamaged();
  *position = at + total;

  const std::string name(Text(at + kEntryBytes, name_bytes));
  const std::string thing = "zip entry '" + Printable(name) + "' ";
  uint64_t stored = Number(at + 20, 4);
  Entry entry{Number(at + 42, 4), Number(at + 24, 4), static_cast<uint32_t>(Number(at + 16, 4))};
  // Extra fields: id, length, content. Id 1 holds those of size, stored size and offset that did not fit, in this
  // order.
  const uint64_t extra_end = at + kEntryBytes + name_bytes + extra_bytes;
  for (uint64_t field = extra_end - extra_bytes; extra_end - field >= 4;) {
    const uint64_t field_end = field + 4 + Number(field + 2, 2);
    if (field_end > extra_end) FailDamaged();
    uint64_t next = field + 4;
    for (uint64_t* value : {&entry.size, &stored, &entry.local_offset}) {
      if (Number(field, 2) != 1 || *value != kIn64) continue;
      if (field_end - next < 8) FailDamaged();
      *value = Number(next, 8);
      next += 8;
    }
    field = field_end;
  }

  if ((Number(at + 8, 2) & kEncryptedFlags) != 0) Fail(thing + "is encrypted, expected a plain one");
  const uint64_t method = Number(at + 10, 2);
  if (method == 0 && stored != entry.size) {
    Fail(thing + "has " + std::to_string(stored) + " bytes, expected its size of " + std::to_string(entry.size));
  }
  if (method != 0) {
    Fail(thing + "is compressed (method " + std::to_string(method) + "), expected a stored one",
         "torch.save never compresses; load the checkpoint with torch and save it again");
  }
  if (!entries_.emplace(name, entry).second) Fail(thing + "is there twice");
}

std::vector<std::string> ZipArchive::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::span<const uint8_t> ZipArchive::Stored(const std::string& name) const {
  const std::string thing = "zip entry '" + Printable(name) + "' ";
  const auto it = entries_.find(name);
  if (it == entries_.end()) Fail(thing + "is missing");
  const uint64_t local = it->second.local_offset;
  if (local > data_end_ || data_end_ - local < kLocalBytes || Text(local, 4) != kLocalMagic ||
      Number(local + 26, 2) != name.size() || Text(local + kLocalBytes, name.size()) != name ||
      (Number(local + 6, 2) & kEncryptedFlags) != 0 || Number(local + 8, 2) != 0) {
    Fail(thing + "has a header that does not match the directory", "the file is damaged; download it again");
  }
  const uint64_t begin = local + kLocalBytes + name.size() + Number(local + 28, 2);
  if (begin > data_end_ || it->second.size > data_end_ - begin) {
    Fail(thing + "has " + std::to_string(it->second.size) + " bytes, more than the file holds",
         "the file is damaged; download it again");
  }
  return file_.bytes.subspan(begin, it->second.size);
}

std::string_view ZipArchive::Read(const std::string& name, uint64_t max_bytes) const {
  const std::span<const uint8_t> stored = Stored(name);
  const std::string thing = "zip entry '" + Printable(name) + "' ";
  if (stored.size() > max_bytes) {
    Fail(thing + "has " + std::to_string(stored.size()) + " bytes, expected at most " + std::to_string(max_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(stored.data()), stored.size());
  if (Crc32(text) != entries_.at(name).crc) {
    Fail(thing + "is damaged (its checksum does not match)", "download the file again");
  }
  return text;
}

void ZipArchive::Fail(const std::string& problem, const std::string& hint) const {
  throw FileError(file_.path, problem, hint);
}

void ZipArchive::FailDamaged() const {
  Fail("has a damaged zip directory", "the file is truncated or damaged; download it again");
}

}  // namespace hydrant::checkpoint
