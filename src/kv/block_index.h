// SPDX-License-Identifier: Apache-2.0
// Which blocks hold the keys and values of which text: what requests with a common beginning share. Bookkeeping alone:
// no memory of blocks, no reference counts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention_arguments.h"

namespace hydrant::kv {

// What a block holds depends on all tokens up to its end, so an entry is found by the content before it and its own
// tokens: from the first block on, text by text, like a chain of hashes but without collisions. Texts of one scope find
// each other's blocks; those of another do not (how long a prompt takes would tell what others have asked).
class BlockIndex {
 public:
  // A content that is or was in the index, never given twice; kNothing: the beginning of a text.
  using Content = uint64_t;
  static constexpr Content kNothing = 0;
  // A block's own tokens, or those and the one behind them, where a row's values depend on the token behind it, too.
  using Tokens = std::span<const int32_t>;

  struct Found {
    int32_t block = -1;  // -1: no such entry
    Content content = kNothing;
  };
  // `scope` matters for the first block of a text only: later blocks are found through their content before.
  Found Find(Content before, std::string_view scope, Tokens tokens) const;
  // Enters a block. Where the content is there already, that entry stays, and is returned.
  Found Add(int32_t block, Content before, std::string_view scope, Tokens tokens);
  // Removes a block. Then nothing that came after its content can be found any more.
  void Remove(int32_t block);
  bool Holds(int32_t block) const { return keys_.contains(block); }
  size_t size() const { return entries_.size(); }

 private:
  struct Key {
    Content before = kNothing;
    std::string scope;  // empty after a text's first block
    std::array<int32_t, kernels::kBlockPositions + 1> tokens{};

    auto operator<=>(const Key&) const = default;
  };
  static Key KeyOf(Content before, std::string_view scope, Tokens tokens);

  // Ordered: a prompt could be made to fill one bucket of a hash table.
  std::map<Key, Found> entries_;
  std::map<int32_t, std::map<Key, Found>::iterator> keys_;  // by block
  Content last_ = kNothing;                                 // given so far
};

}  // namespace hydrant::kv
