// SPDX-License-Identifier: Apache-2.0
// Where a reply is in a text that predicts it, and what that text says next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hydrant::draft {

// The reply is held to begin at the prediction's first token and to go on with it. Where it differs, the place is found
// again by the reply's last tokens: kMinMatch of them at least, most of those that agree first, then the place nearest
// to where it was. A step costs time linear in the prediction only while the place is lost.
class Prediction {
 public:
  explicit Prediction(std::vector<int32_t> tokens);

  // Further tokens of the reply.
  void Append(std::span<const int32_t> reply);
  // What the prediction says next, at most `max_tokens`; none where the place is lost. A chain grows with the number of
  // tokens that have agreed: kFirstChain at the beginning, twice what agrees later.
  std::span<const int32_t> Next(int32_t max_tokens) const;

  static constexpr int32_t kMinMatch = 2, kLongestMatch = 32, kFirstChain = 8;

 private:
  void Find();
  // How many of the reply's last tokens end at `place`, at most kLongestMatch.
  int32_t MatchAt(size_t place) const;

  std::vector<int32_t> tokens_;
  std::vector<int32_t> reply_;  // its last kLongestMatch tokens
  size_t next_ = 0;             // of the token that is expected
  bool is_lost_ = false;
  int32_t agreed_ = kFirstChain / 2;  // tokens in a row that were as expected
};

}  // namespace hydrant::draft
