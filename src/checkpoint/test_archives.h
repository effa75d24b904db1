// SPDX-License-Identifier: Apache-2.0
// Writes small safetensors and PyTorch zip files for tests, right or wrong on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/file_source.h"

namespace hydrant::checkpoint::test_archives {

// `bytes` little-endian bytes of `value`.
inline std::string Le(uint64_t value, size_t bytes) {
  std::string text(bytes, '\0');
  std::memcpy(text.data(), &value, bytes);
  return text;
}

inline std::string Safetensors(const std::string& header, const std::string& data) {
  return Le(header.size(), 8) + header + data;
}

inline uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

struct ZipEntry {
  std::string name;
  std::string content;
  uint16_t flags = 0;   // 1 = encrypted
  uint16_t method = 0;  // 8 = deflated
};

// A zip file; with `zip64`, sizes and offsets stand in zip64 fields.
inline std::string Zip(const std::vector<ZipEntry>& entries, bool zip64 = false) {
  std::string file;
  std::string directory;
  for (const ZipEntry& entry : entries) {
    const uint64_t offset = file.size();
    const uint64_t size = entry.content.size();
    const std::string common = Le(zip64 ? 45 : 20, 2) + Le(entry.flags, 2) + Le(entry.method, 2) + Le(0, 4) +
                               Le(Crc32(entry.content), 4) + Le(zip64 ? 0xFFFFFFFF : size, 4) +
                               Le(zip64 ? 0xFFFFFFFF : size, 4) + Le(entry.name.size(), 2);
    const std::string local_extra = zip64 ? Le(1, 2) + Le(16, 2) + Le(size, 8) + Le(size, 8) : "";
    const std::string extra = zip64 ? Le(1, 2) + Le(24, 2) + Le(size, 8) + Le(size, 8) + Le(offset, 8) : "";
    file += "PK\x03\x04" + common + Le(local_extra.size(), 2) + entry.name + local_extra + entry.content;
    directory += "PK\x01\x02" + Le(45, 2) + common + Le(extra.size(), 2) + Le(0, 2) + Le(0, 2) + Le(0, 2) + Le(0, 4) +
                 Le(zip64 ? 0xFFFFFFFF : offset, 4) + entry.name + extra;
  }
  const uint64_t begin = file.size();
  file += directory;
  if (zip64) {
    const uint64_t record = file.size();
    file += "PK\x06\x06" + Le(44, 8) + Le(45, 2) + Le(45, 2) + Le(0, 4) + Le(0, 4) + Le(entries.size(), 8) +
            Le(entries.size(), 8) + Le(directory.size(), 8) + Le(begin, 8);
    file += "PK\x06\x07" + Le(0, 4) + Le(record, 8) + Le(1, 4);
  }
  return file + "PK\x05\x06" + Le(0, 4) + Le(zip64 ? 0xFFFF : entries.size(), 2) +
         Le(zip64 ? 0xFFFF : entries.size(), 2) + Le(zip64 ? 0xFFFFFFFF : directory.size(), 4) +
         Le(zip64 ? 0xFFFFFFFF : begin, 4) + Le(0, 2);
}

// Pieces of pickles.
inline std::string Proto() { return "\x80\x02"; }
inline std::string Text(std::string_view text) { return std::string("X") + Le(text.size(), 4) + std::string(text); }
inline std::string Int(int64_t value) {
  const bool small = value >= 0 && value < 256;
  return (small ? std::string("K") : std::string("\x8a\x08")) + Le(static_cast<uint64_t>(value), small ? 1 : 8);
}
inline std::string Tuple(const std::vector<int64_t>& values) {
  std::string text = "(";
  for (const int64_t value : values) text += Int(value);
  return text + "t";
}
inline std::string Global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

struct ViewOf {
  std::string key = "0";
  std::string storage_class = "FloatStorage";
  int64_t elements = 0;
  int64_t offset = 0;
  std::vector<int64_t> shape, strides;
};

inline std::string Tensor(const ViewOf& view) {
  return Global("torch._utils", "_rebuild_tensor_v2") + "((" + Text("storage") + Global("torch", view.storage_class) +
         Text(view.key) + Text("cpu") + Int(view.elements) + "tQ" + Int(view.offset) + Tuple(view.shape) +
         Tuple(view.strides) + "\x89" + Global("collections", "OrderedDict") + ")RtR";
}

// A dict of (name, pickled value), with the opcodes that torch.save uses.
inline std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string text = Global("collections", "OrderedDict") + ")R(";
  for (const auto& [name, value] : items) text += Text(name) + value;
  return text + "u}" + Text("_metadata") + Global("collections", "OrderedDict") + ")Rsb";
}

inline std::string Archive(const std::string& pickle, const std::vector<std::pair<std::string, std::string>>& storages,
                           bool zip64 = false) {
  std::vector<ZipEntry> entries = {{"archive/data.pkl", pickle}, {"archive/byteorder", "little"}};
  for (const auto& [key, content] : storages) entries.push_back({"archive/data/" + key, content});
  entries.push_back({"archive/version", "3\n"});
  return Zip(entries, zip64);
}

inline std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// The file as a reader sees it; `content` must outlive what is read from it.
inline FileBytes InMemory(const std::string& name, const std::string& content) {
  return {name, {reinterpret_cast<const uint8_t*>(content.data()), content.size()}, nullptr};
}

}  // namespace hydrant::checkpoint::test_archives
