// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding by a ranked merge list.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_fwd.h"

namespace hydrant::tokenizer {

class BpeModel {
 public:
  // The "model" of a tokenizer.json. Merges may be strings "a b" or pairs. Throws FileError.
  static BpeModel Parse(const base::JsonView& json);

  // Appends the ids of one word. The time is O(n log n) in its length: merges wait in a heap.
  void Encode(std::string_view word, std::vector<int32_t>* ids) const;

  // -1 when absent.
  int32_t IdOf(std::string_view token) const;
  // By id; an id without a token is an empty string.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  struct Symbol {
    int32_t id;
    int32_t previous;  // -1 = first
    int32_t next;      // -1 = last
  };

  void ReadVocabulary(const base::JsonView& vocab);
  void ReadMerges(const base::JsonView& merges);
  void AddMerge(const base::JsonView& merge, int32_t rank, std::string_view left, std::string_view right);
  void ReadUnknown(const base::JsonView& json);
  std::vector<Symbol> Characters(std::string_view word) const;
  void AppendCharacter(std::string_view character, bool* last_is_unknown, std::vector<Symbol>* symbols) const;
  void MergeAll(std::vector<Symbol>* symbols) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
  std::unordered_map<uint64_t, Merge> merges_;  // key: left id and right id
  std::vector<int32_t> byte_ids_;               // [256] ids of <0x00> to <0xFF>, -1 = absent; empty: no byte fallback
  int32_t unknown_id_ = -1;                     // -1: characters that are not in the vocabulary vanish
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace hydrant::tokenizer
