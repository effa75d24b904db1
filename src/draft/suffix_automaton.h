// SPDX-License-Identifier: Apache-2.0
// Where the end of a growing text has stood before (docs/algorithms/lookup.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hydrant::draft {

// How many last tokens are looked for: 1 <= least <= most.
struct MatchLengths {
  int32_t least = 1, most = 1;
};

// The longest run of tokens that ends the text and has ended before, and where. length 0: no run of `least` has.
struct Recurrence {
  int32_t length = 0;
  int32_t first_end = -1, last_end = -1;  // its earliest end, and its latest one but the text's own

  bool operator==(const Recurrence&) const = default;
};

// The suffix automaton of a text, built token by token: Blumer et al., "The smallest automaton recognizing the subwords
// of a text", 1985. A state stands for all runs that have ended at the same places, and its link for the longest suffix
// of them that has ended at more. An appended token costs O(1) amortised, and a walk along at most `most` links, which
// notes the latest end. It takes at most 80 bytes a token, the spare room of the vectors apart.
class SuffixAutomaton {
 public:
  explicit SuffixAutomaton(const MatchLengths& lengths);

  void Append(int32_t token);

  const Recurrence& recurrence() const { return recurrence_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  // In use, without the spare room of the vectors.
  size_t bytes() const;

 private:
  using StateId = int32_t;
  using EdgeId = int32_t;
  static constexpr int32_t kNone = -1;
  static constexpr StateId kRoot = 0;

  // Most states go on with one token only, the one behind their first end. That edge needs no entry in the table.
  struct State {
    int32_t length = 0;  // of its longest run
    StateId link = kNone;
    int32_t first_end = -1, last_end = -1;
    StateId next = kNone;  // where tokens_[first_end + 1] leads; kNone while first_end is the text's end
    EdgeId edges = kNone;  // the latest of the others, which are chained
  };
  struct Edge {
    StateId from = kRoot;
    int32_t token = 0;
    StateId to = kRoot;
    EdgeId next_of_state = kNone, next_of_bucket = kNone;
  };

  State& At(StateId state) { return states_[static_cast<size_t>(state)]; }
  const State& At(StateId state) const { return states_[static_cast<size_t>(state)]; }
  // Whether the edge by this token is State::next.
  bool IsNext(const State& state, int32_t token) const;
  StateId Follow(StateId state, int32_t token) const;
  void Redirect(StateId state, int32_t token, StateId to);
  void AddEdge(StateId from, int32_t token, StateId to);
  EdgeId FindEdge(StateId from, int32_t token) const;
  size_t BucketOf(StateId from, int32_t token) const;
  void GrowBuckets();

  void Extend();
  StateId Clone(StateId of, int32_t length);
  void FollowMatch(int32_t token);
  void NoteEnd();

  MatchLengths lengths_;
  std::vector<int32_t> tokens_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<EdgeId> buckets_;  // of edges_, by state and token
  uint64_t factor_;              // of the hash
  int32_t shift_;                // 64 - log2 of the number of buckets
  StateId whole_ = kRoot;        // of the whole text
  // The longest run of at most lengths_.most that ends the text and has ended before.
  StateId match_ = kRoot;
  int32_t match_length_ = 0;
  Recurrence recurrence_;
};

}  // namespace hydrant::draft
