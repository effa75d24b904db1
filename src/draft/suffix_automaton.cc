// SPDX-License-Identifier: Apache-2.0
#include "draft/suffix_automaton.h"

#include <limits>
#include <random>

#include "base/check.h"

namespace hydrant::draft {
namespace {

constexpr int32_t kFirstBucketBits = 4;

// The factor of multiplicative hashing (Dietzfelbinger et al., 1997). Drawn once per process: whoever writes a prompt
// cannot know which edges share a bucket. What is found does not depend on it.
uint64_t HashFactor() {
  static const uint64_t factor = [] {
    std::random_device device;
    return (uint64_t{device()} << 32 | device()) | 1;
  }();
  return factor;
}

}  // namespace

SuffixAutomaton::SuffixAutomaton(const MatchLengths& lengths)
    : lengths_(lengths),
      states_(1),
      buckets_(size_t{1} << kFirstBucketBits, kNone),
      factor_(HashFactor()),
      shift_(64 - kFirstBucketBits) {
  HYDRANT_CHECK(lengths.least > 0 && lengths.least <= lengths.most);
}

void SuffixAutomaton::Append(int32_t token) {
  HYDRANT_CHECK(tokens_.size() < size_t{std::numeric_limits<int32_t>::max() / 2});  // states are twice as many
  FollowMatch(token);
  tokens_.push_back(token);
  Extend();
  // The run's state may have been split, and the run be in the new half.
  if (match_ != kRoot && match_length_ <= At(At(match_).link).length) match_ = At(match_).link;
  NoteEnd();
}

size_t SuffixAutomaton::bytes() const {
  return tokens_.size() * sizeof(int32_t) + states_.size() * sizeof(State) + edges_.size() * sizeof(Edge) +
         buckets_.size() * sizeof(EdgeId);
}

bool SuffixAutomaton::IsNext(const State& state, int32_t token) const {
  const auto next = static_cast<size_t>(state.first_end + 1);
  return next < tokens_.size() && tokens_[next] == token;
}

SuffixAutomaton::StateId SuffixAutomaton::Follow(StateId state, int32_t token) const {
  if (IsNext(At(state), token)) return At(state).next;
  if (At(state).edges == kNone) return kNone;
  const EdgeId edge = FindEdge(state, token);
  return edge == kNone ? kNone : edges_[static_cast<size_t>(edge)].to;
}

void SuffixAutomaton::Redirect(StateId state, int32_t token, StateId to) {
  if (IsNext(At(state), token)) {
    At(state).next = to;
  } else {
    edges_[static_cast<size_t>(FindEdge(state, token))].to = to;
  }
}

void SuffixAutomaton::AddEdge(StateId from, int32_t token, StateId to) {
  if (edges_.size() == buckets_.size()) GrowBuckets();
  EdgeId& bucket = buckets_[BucketOf(from, token)];
  const auto edge = static_cast<EdgeId>(edges_.size());
  edges_.push_back({.from = from, .token = token, .to = to, .next_of_state = At(from).edges, .next_of_bucket = bucket});
  At(from).edges = edge;
  bucket = edge;
}

SuffixAutomaton::EdgeId SuffixAutomaton::FindEdge(StateId from, int32_t token) const {
  EdgeId id = buckets_[BucketOf(from, token)];
  while (id != kNone) {
    const Edge& edge = edges_[static_cast<size_t>(id)];
    if (edge.from == from && edge.token == token) break;
    id = edge.next_of_bucket;
  }
  return id;
}

size_t SuffixAutomaton::BucketOf(StateId from, int32_t token) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(from)} << 32 | static_cast<uint32_t>(token);
  return (key * factor_) >> shift_;
}

void SuffixAutomaton::GrowBuckets() {
  buckets_.assign(buckets_.size() * 2, kNone);
  --shift_;
  for (size_t i = 0; i < edges_.size(); ++i) {
    EdgeId& bucket = buckets_[BucketOf(edges_[i].from, edges_[i].token)];
    edges_[i].next_of_bucket = bucket;
    bucket = static_cast<EdgeId>(i);
  }
}

// The automaton of the text with its last token, from that of the text without.
void SuffixAutomaton::Extend() {
  const int32_t token = tokens_.back();
  const auto end = static_cast<int32_t>(tokens_.size()) - 1;
  const auto added = static_cast<StateId>(states_.size());
  states_.push_back({.length = end + 1, .link = kRoot, .first_end = end, .last_end = end});
  // Suffixes of the text that have not been followed by this token yet.
  At(whole_).next = added;
  StateId suffix = At(whole_).link;
  StateId known = kNone;
  for (; suffix != kNone && (known = Follow(suffix, token)) == kNone; suffix = At(suffix).link) {
    AddEdge(suffix, token, added);
  }
  whole_ = added;
  if (suffix == kNone) return;
  const int32_t length = At(suffix).length + 1;
  if (At(known).length == length) {
    At(added).link = known;
    return;
  }
  // Of the runs of `known`, only those up to `length` end here too.
  const StateId clone = Clone(known, length);
  for (; suffix != kNone && Follow(suffix, token) == known; suffix = At(suffix).link) Redirect(suffix, token, clone);
  At(known).link = clone;
  At(added).link = clone;
}

SuffixAutomaton::StateId SuffixAutomaton::Clone(StateId of, int32_t length) {
  const auto clone = static_cast<StateId>(states_.size());
  State state = At(of);
  state.length = length;
  state.edges = kNone;
  states_.push_back(state);
  for (EdgeId edge = At(of).edges; edge != kNone;) {
    const Edge copied = edges_[static_cast<size_t>(edge)];
    AddEdge(clone, copied.token, copied.to);
    edge = copied.next_of_state;
  }
  return clone;
}

// To the longest run that ends the text with this token and ends in the text without it.
void SuffixAutomaton::FollowMatch(int32_t token) {
  StateId next = Follow(match_, token);
  while (next == kNone && match_ != kRoot) {
    match_ = At(match_).link;
    match_length_ = At(match_).length;
    next = Follow(match_, token);
  }
  if (next == kNone) return;
  match_ = next;
  if (++match_length_ <= lengths_.most) return;
  match_length_ = lengths_.most;
  if (At(At(match_).link).length >= match_length_) match_ = At(match_).link;
}

void SuffixAutomaton::NoteEnd() {
  recurrence_ = {};
  if (match_length_ < lengths_.least) return;
  recurrence_ = {.length = match_length_, .first_end = At(match_).first_end, .last_end = At(match_).last_end};
  const auto end = static_cast<int32_t>(tokens_.size()) - 1;
  for (StateId state = match_; At(state).length >= lengths_.least; state = At(state).link) At(state).last_end = end;
}

}  // namespace hydrant::draft
