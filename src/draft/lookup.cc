// SPDX-License-Identifier: Apache-2.0
#include "draft/lookup.h"

#include <algorithm>
#include <utility>

namespace hydrant::draft {

TokenLookup::TokenLookup(const LookupOptions& options, std::vector<int32_t> eos_token_ids)
    : rule_(options.rule),
      eos_token_ids_(std::move(eos_token_ids)),
      text_({.least = LeastMatch(options), .most = MostMatch(options)}) {}

void TokenLookup::Append(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) text_.Append(token);
}

std::span<const int32_t> TokenLookup::Find(int32_t max_tokens) {
  found_.clear();
  if (max_tokens <= 0 || text_.recurrence().length == 0) return found_;
  if (rule_ == LookupRule::kFirst) {
    FindFirst(max_tokens);
  } else {
    FindLast(max_tokens);
  }
  return found_;
}

void TokenLookup::FindFirst(int32_t max_tokens) {
  const std::span<const int32_t> tokens = text_.tokens();
  const size_t begin = static_cast<size_t>(text_.recurrence().first_end) + 1;
  const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(max_tokens));
  for (size_t i = begin; i < end && !std::ranges::count(eos_token_ids_, tokens[i]); ++i) found_.push_back(tokens[i]);
}

void TokenLookup::FindLast(int32_t max_tokens) {
  const std::span<const int32_t> tokens = text_.tokens();
  const Recurrence& place = text_.recurrence();
  const int32_t count = std::min(max_tokens, place.length);
  for (int32_t i = 0; i < count; ++i) {
    const size_t next = static_cast<size_t>(place.last_end) + 1 + static_cast<size_t>(i);
    found_.push_back(next < tokens.size() ? tokens[next] : found_[next - tokens.size()]);
  }
}

}  // namespace hydrant::draft
