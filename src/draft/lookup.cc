// SPDX-License-Identifier: Apache-2.0
#include "draft/lookup.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hydrant::draft {
namespace {

// FNV-1a over whole tokens. Collisions cost a comparison each: MatchAt looks at the tokens.
uint64_t HashOf(std::span<const int32_t> tokens) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3;
  return hash;
}

}  // namespace

TokenLookup::TokenLookup(int32_t min_match) : min_match_(min_match) {
  HYDRANT_CHECK(min_match > 0 && min_match <= kLongestMatch);
}

void TokenLookup::Append(std::span<const int32_t> tokens) {
  const auto run = static_cast<size_t>(min_match_);
  for (const int32_t token : tokens) {
    tokens_.push_back(token);
    before_.push_back(-1);
    if (tokens_.size() < run) continue;
    const auto end = static_cast<int32_t>(tokens_.size()) - 1;
    const auto [place, is_new] = last_.try_emplace(HashOf(std::span(tokens_).last(run)), end);
    if (!is_new) before_.back() = std::exchange(place->second, end);
  }
}

int32_t TokenLookup::MatchAt(int32_t place) const {
  const int32_t most = std::min(place + 1, kLongestMatch);
  int32_t match = 0;
  for (; match < most; ++match) {
    if (tokens_[static_cast<size_t>(place - match)] != tokens_[tokens_.size() - 1 - static_cast<size_t>(match)]) break;
  }
  return match;
}

std::span<const int32_t> TokenLookup::Find(int32_t max_tokens) {
  found_.clear();
  if (tokens_.empty()) return found_;
  int32_t best = -1, longest = min_match_ - 1;
  int32_t place = before_.back();
  for (int32_t tried = 0; place >= 0 && tried < kMostTried && longest < kLongestMatch; ++tried) {
    const int32_t match = MatchAt(place);
    if (match > longest) {
      longest = match;
      best = place;
    }
    place = before_[static_cast<size_t>(place)];
  }
  if (best < 0) return found_;
  const int32_t count = std::min(max_tokens, longest);
  for (int32_t i = 0; i < count; ++i) {
    const size_t next = static_cast<size_t>(best) + 1 + static_cast<size_t>(i);
    found_.push_back(next < tokens_.size() ? tokens_[next] : found_[next - tokens_.size()]);
  }
  return found_;
}

}  // namespace hydrant::draft
