// SPDX-License-Identifier: Apache-2.0
// A folder of weights from a short description, so that what a fuzzer changes reaches the checks behind the header's:
//
//   {"hydra_head_arch": "mlp"}               config.json: all before the first "--" line
//   -- hydra_lm_head.safetensors             a file; several may follow each other
//   F32 hydra_lm_head.0.weight 24 8          a tensor of zeros
//   I64 d2t 12 : 0 2                         element i is 0 + 2 * i, as an integer or as the bits of another type
//   @hydra_mlp.0.2.linear.weight hydra_mlp.0.1.linear.weight     one entry of __metadata__
//
// A file whose name ends with .json takes its lines as they are.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace hydrant::fuzz {

// Takes the first word of `text` off, and the space behind it.
inline std::string_view TakeUntil(std::string_view& text, char end) {
  const std::string_view word = text.substr(0, text.find(end));
  text.remove_prefix(word.size() < text.size() ? word.size() + 1 : word.size());
  return word;
}

// 0 where there is none.
inline int64_t NumberOf(std::string_view word) {
  int64_t number = 0;
  std::from_chars(word.data(), word.data() + word.size(), number);
  return number;
}

// One file, line by line.
class WeightsText {
 public:
  void Add(std::string_view line) {
    if (line.starts_with('@')) {
      line.remove_prefix(1);
      const std::string_view name = TakeUntil(line, ' ');
      metadata_[std::string(name)] = line;
    } else if (line.find(' ') != std::string_view::npos) {
      AddTensor(line);
    }
  }

  // As a safetensors file.
  std::string Bytes() const {
    base::Json header = base::Json::object();
    for (const auto& [name, entry] : tensors_) header[name] = entry;
    if (!metadata_.empty()) header["__metadata__"] = metadata_;
    std::string text = base::DumpJson(header);
    text.resize((text.size() + 71) / 64 * 64 - 8, ' ');  // packed tensors lie at multiples of 64 bytes
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i));
    return bytes + text + data_;
  }

 private:
  static constexpr size_t kMostBytes = size_t{256} << 10;

  void AddTensor(std::string_view line) {
    const std::string dtype(TakeUntil(line, ' ')), name(TakeUntil(line, ' '));
    std::string_view extents = TakeUntil(line, ':');
    if (tensors_.contains(name)) return;
    std::vector<int64_t> shape;
    uint64_t count = 1;
    while (!extents.empty()) {
      const std::string_view word = TakeUntil(extents, ' ');
      if (word.empty()) continue;
      shape.push_back(NumberOf(word));
      count *= static_cast<uint64_t>(shape.back());
    }
    if (line.starts_with(' ')) line.remove_prefix(1);
    const auto first = static_cast<uint64_t>(NumberOf(TakeUntil(line, ' ')));
    const auto step = static_cast<uint64_t>(NumberOf(line));
    const uint64_t size = SizeOf(dtype), begin = end_;
    end_ = begin + count * size;
    // A header may say more than there is: such a file is refused.
    if (end_ < begin || end_ > kMostBytes) end_ = begin > kMostBytes ? begin : kMostBytes + 1;
    tensors_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end_}}};
    for (uint64_t i = 0; i < count && data_.size() + size <= kMostBytes; ++i) {
      const uint64_t value = first + i * step;
      for (uint64_t b = 0; b < size; ++b) data_ += static_cast<char>(value >> (8 * b));
    }
  }

  static uint64_t SizeOf(std::string_view dtype) {
    if (dtype == "I64") return 8;
    if (dtype == "F32" || dtype == "I32") return 4;
    return dtype == "F16" || dtype == "BF16" ? 2 : 1;
  }

  std::map<std::string, base::Json> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string data_;
  uint64_t end_ = 0;
};

// Any other name becomes the last one.
inline constexpr std::string_view kFileNames[] = {"hydra_lm_head.safetensors", "medusa_lm_head.safetensors",
                                                  "adapter_model.safetensors", "rank0.safetensors",
                                                  "rank1.safetensors",         "generation_config.json",
                                                  "adapter_config.json",       "model.safetensors.index.json",
                                                  "model.safetensors"};

inline std::string FileNameOf(std::string_view wanted) {
  for (const std::string_view name : kFileNames) {
    if (name == wanted) return std::string(name);
  }
  return std::string(kFileNames[std::size(kFileNames) - 1]);
}

// Writes the files of a description into `folder`, which then holds nothing else.
inline void WriteFolder(std::string_view text, const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove(entry.path());
  const auto write = [&folder](const std::string& name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  std::string file = "config.json", lines;
  WeightsText weights;
  const auto keep = [&] {
    const bool is_json = file.ends_with(".json");
    if (!is_json || !lines.empty()) write(file, is_json ? lines : weights.Bytes());
    lines.clear();
    weights = {};
  };
  while (!text.empty()) {
    const std::string_view line = TakeUntil(text, '\n');
    if (line.starts_with("--")) {
      keep();
      file = FileNameOf(line.substr(line.find_first_not_of("- ") < line.size() ? line.find_first_not_of("- ") : 0));
    } else if (file.ends_with(".json")) {
      lines.append(line) += '\n';
    } else {
      weights.Add(line);
    }
  }
  keep();
}

}  // namespace hydrant::fuzz
