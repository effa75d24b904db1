// SPDX-License-Identifier: Apache-2.0
// Drafts from the text itself: what followed its last tokens where they stood before, in the prompt or in the reply
// (prompt lookup, github.com/apoorvumang/prompt-lookup-decoding). Costs no weights; pays where text repeats itself.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace hydrant::draft {

// All tokens of one sequence, and where each run of `min_match` of them ended last. Memory is linear in the tokens, and
// a lookup compares at most kMostTried x kLongestMatch tokens.
class TokenLookup {
 public:
  explicit TokenLookup(int32_t min_match);

  void Append(std::span<const int32_t> tokens);

  // What may come next. Of the kMostTried latest places where the last min_match tokens stood before, it takes the one
  // where most tokens agree with the end of the text, and of equal ones the latest. It gives as many tokens as agree
  // there, at most `max_tokens`, and none where the last tokens are new. A place near the end continues into its own
  // prediction, so that a short period repeats. Valid until the next call.
  std::span<const int32_t> Find(int32_t max_tokens);

  static constexpr int32_t kMostTried = 64, kLongestMatch = 64;

 private:
  // How many tokens that end at `place` equal those that end the text, at most kLongestMatch.
  int32_t MatchAt(int32_t place) const;

  int32_t min_match_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> before_;  // [tokens]: where the run that ends here ended before, -1 = nowhere
  // By the run's hash: where it ended last. A tree, as a prompt could be made to fill one bucket of a hash table.
  std::map<uint64_t, int32_t> last_;
  std::vector<int32_t> found_;
};

}  // namespace hydrant::draft
