// SPDX-License-Identifier: Apache-2.0
#include "draft/prediction.h"

#include <algorithm>
#include <utility>

namespace hydrant::draft {

Prediction::Prediction(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}

void Prediction::Append(std::span<const int32_t> reply) {
  for (const int32_t token : reply) {
    reply_.push_back(token);
    if (reply_.size() > size_t{kLongestMatch}) reply_.erase(reply_.begin());
    if (!is_lost_ && next_ < tokens_.size() && tokens_[next_] == token) {
      ++next_;
      ++agreed_;
    } else {
      is_lost_ = true;
    }
  }
  if (is_lost_) Find();
}

int32_t Prediction::MatchAt(size_t place) const {
  const size_t most = std::min(place + 1, reply_.size());
  size_t match = 0;
  while (match < most && tokens_[place - match] == reply_[reply_.size() - 1 - match]) ++match;
  return static_cast<int32_t>(match);
}

void Prediction::Find() {
  const auto distance = [this](size_t place) { return place + 1 > next_ ? place + 1 - next_ : next_ - place - 1; };
  int32_t longest = kMinMatch - 1;
  size_t best = 0;
  for (size_t place = 0; place < tokens_.size(); ++place) {
    if (tokens_[place] != reply_.back()) continue;
    const int32_t match = MatchAt(place);
    if (match < longest || match < kMinMatch) continue;
    if (match == longest && distance(place) >= distance(best)) continue;
    longest = match;
    best = place;
  }
  if (longest < kMinMatch) return;
  is_lost_ = false;
  next_ = best + 1;
  agreed_ = longest;
}

std::span<const int32_t> Prediction::Next(int32_t max_tokens) const {
  if (is_lost_ || max_tokens <= 0) return {};
  const size_t count = std::min(
      {tokens_.size() - next_, static_cast<size_t>(max_tokens), static_cast<size_t>(std::min(agreed_, 1 << 20)) * 2});
  return std::span(tokens_).subspan(next_, count);
}

}  // namespace hydrant::draft
