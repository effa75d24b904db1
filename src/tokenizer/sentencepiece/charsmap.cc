// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece/charsmap.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hydrant/error.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

// Unicode's longest compatibility mapping has 33 bytes; a bound keeps hostile tables from multiplying a text.
constexpr size_t kMaxMappedBytes = 128;
// Keys are short sequences of characters; the library follows a key from every place of the text.
constexpr size_t kMaxKeyBytes = 64;

// A darts-clone double array. Bits of a unit: 0-7 label, 8 has a leaf, 9 offset is in steps of 256, 10-30 offset;
// bit 31 marks a leaf, whose other bits are its value.
class Trie {
 public:
  Trie(std::string_view bytes, std::string_view mapped, const std::string& file)
      : units_(bytes.size() / 4), seen_(units_.size()), longest_below_(units_.size()), mapped_(mapped), file_(file) {
    std::memcpy(units_.data(), bytes.data(), units_.size() * 4);
  }

  void Check() { CheckFrom(0, 0); }

 private:
  static uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
  static bool HasLeaf(uint32_t unit) { return ((unit >> 8) & 1) == 1; }
  static uint32_t Label(uint32_t unit) { return unit & ((1U << 31) | 0xFF); }

  [[noreturn]] void Fail(const std::string& problem) const {
    throw FileError(file_, "'normalizer_spec.precompiled_charsmap' " + problem, "the file is damaged");
  }

  // Returns the bytes of the longest key below `node`. Nodes may be shared, hence the memory; a way in a circle ends at
  // the limit of `depth`, which bounds the recursion too.
  size_t CheckFrom(uint32_t node, size_t depth) {
    const uint32_t base = node ^ Offset(units_[node]);
    // The library reads base ^ byte for any byte of the text.
    if ((base | 0xFF) >= units_.size()) Fail("leads outside the table of " + std::to_string(units_.size()) + " units");
    if (node != 0 && HasLeaf(units_[node])) CheckLeaf(units_[base]);
    size_t longest = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t child = base ^ byte;
      if (Label(units_[child]) != byte) continue;
      if (depth >= kMaxKeyBytes) FailKey();
      const size_t below = seen_[child] ? longest_below_[child] : CheckFrom(child, depth + 1);
      longest = std::max(longest, below + 1);
      if (depth + longest > kMaxKeyBytes) FailKey();
    }
    seen_[node] = true;
    longest_below_[node] = static_cast<uint8_t>(longest);
    return longest;
  }

  [[noreturn]] void FailKey() const { Fail("has a key of more than " + std::to_string(kMaxKeyBytes) + " bytes"); }

  void CheckLeaf(uint32_t unit) const {
    const size_t begin = unit & ((1U << 31) - 1);
    const size_t end = begin < mapped_.size() ? mapped_.find('\0', begin) : std::string_view::npos;
    if (end == std::string_view::npos) Fail("leads outside its texts of " + std::to_string(mapped_.size()) + " bytes");
    if (end - begin > kMaxMappedBytes)
      Fail("has a text of " + std::to_string(end - begin) + " bytes, expected at most 128");
    if (!IsValidUtf8(mapped_.substr(begin, end - begin))) Fail("has a text that is not valid UTF-8");
  }

  std::vector<uint32_t> units_;
  std::vector<bool> seen_;              // by unit: checked
  std::vector<uint8_t> longest_below_;  // by unit, once seen
  std::string_view mapped_;
  const std::string& file_;
};

}  // namespace

void CheckCharsmap(std::string_view charsmap, const std::string& file) {
  if (charsmap.empty()) return;
  const auto fail = [&file](const std::string& problem) {
    throw FileError(file, "'normalizer_spec.precompiled_charsmap' " + problem, "the file is damaged");
  };
  uint32_t trie_bytes = 0;
  if (charsmap.size() < sizeof(trie_bytes)) fail("has " + std::to_string(charsmap.size()) + " bytes");
  std::memcpy(&trie_bytes, charsmap.data(), sizeof(trie_bytes));
  const std::string_view rest = charsmap.substr(sizeof(trie_bytes));
  // 256 units are the least: any byte may follow the root.
  if (trie_bytes % 4 != 0 || trie_bytes < 1024 || trie_bytes >= rest.size()) {
    fail("says that its trie has " + std::to_string(trie_bytes) + " bytes, of " + std::to_string(rest.size()));
  }
  Trie(rest.substr(0, trie_bytes), rest.substr(trie_bytes), file).Check();
}

}  // namespace hydrant::tokenizer
