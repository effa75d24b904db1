// SPDX-License-Identifier: Apache-2.0
#include "kv/block_index.h"

#include <algorithm>

#include "base/check.h"

namespace hydrant::kv {

BlockIndex::Key BlockIndex::KeyOf(Content before, std::string_view scope, Tokens tokens) {
  Key key{.before = before, .scope = before == kNothing ? std::string(scope) : std::string()};
  HYDRANT_CHECK(tokens.size() + 1 == key.tokens.size() || tokens.size() == key.tokens.size());
  key.tokens.back() = -1;
  std::ranges::copy(tokens, key.tokens.begin());
  return key;
}

BlockIndex::Found BlockIndex::Find(Content before, std::string_view scope, Tokens tokens) const {
  const auto entry = entries_.find(KeyOf(before, scope, tokens));
  return entry == entries_.end() ? Found() : entry->second;
}

BlockIndex::Found BlockIndex::Add(int32_t block, Content before, std::string_view scope, Tokens tokens) {
  const auto [entry, is_new] = entries_.try_emplace(KeyOf(before, scope, tokens), Found{block, last_ + 1});
  if (!is_new) return entry->second;
  ++last_;
  const bool was_free = keys_.try_emplace(block, entry).second;
  HYDRANT_CHECK(was_free);
  return entry->second;
}

void BlockIndex::Remove(int32_t block) {
  const auto key = keys_.find(block);
  if (key == keys_.end()) return;
  entries_.erase(key->second);
  keys_.erase(key);
}

}  // namespace hydrant::kv
