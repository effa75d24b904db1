// SPDX-License-Identifier: Apache-2.0
// What decoding with any tree would have given over replies that are there already: a walk over recorded ranks, without
// a model. docs/algorithms/replay.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tree/topology.h"

namespace hydrant::tree {

// Of a token that is not among the first num_ranks of its head's order; of one that the record does not have; and of
// all levels behind such a one.
inline constexpr uint8_t kNoRank = 255;

// Where the tokens of recorded replies stand in the order of a drafter's heads, given the true text before them.
struct RankTable {
  int32_t num_levels = 0;  // K, 1 at least
  int32_t num_ranks = 0;   // W, 1 to kNoRank: ranks are 0 .. W - 1, and kNoRank
  // [replies] of [rows, K]. Row t is of a step whose root is token t of the reply: its level d is the rank of token
  // t + 1 + d. The last token is no step's root, so there is a row less than tokens.
  std::vector<std::vector<uint8_t>> replies;

  int32_t num_rows(size_t reply) const {
    return static_cast<int32_t>(replies[reply].size() / static_cast<size_t>(num_levels));
  }
  std::span<const uint8_t> Row(size_t reply, int32_t row) const {
    const auto levels = static_cast<size_t>(num_levels);
    return std::span(replies[reply]).subspan(static_cast<size_t>(row) * levels, levels);
  }
  bool operator==(const RankTable&) const = default;
};

// What no recording gives: sizes out of range, ranks that are too high, ranks behind a kNoRank. Empty: all is well.
std::string ProblemIn(const RankTable& table);

struct ReplayedStep {
  int32_t root = 0;          // its place in the reply
  int32_t num_accepted = 0;  // as verified: drafted tokens behind the reply's end count

  bool operator==(const ReplayedStep&) const = default;
};

struct Replayed {
  std::vector<std::vector<ReplayedStep>> replies;
  int64_t num_steps = 0;
  int64_t num_emitted = 0;  // as verified
  int64_t num_tokens = 0;   // of the replies, the first ones not counted: the prompts' passes give those
  double tokens_per_step = 1;
  // Of tokens_per_step, over replies. Infinite where fewer than two replies have steps.
  double standard_error = 0;

  // The mean of num_emitted over the steps.
  double emitted_per_step() const {
    return num_steps > 0 ? static_cast<double>(num_emitted) / static_cast<double>(num_steps) : 1;
  }
};

// Decodes each reply anew with the tree, under the exact rule. Throws UserError for a tree with levels or ranks that
// the table does not have.
Replayed Replay(const RankTable& table, const Topology& tree);

// [N] The share of all rows at which a node would be accepted; the root's is 1. Their sum is what a step would emit if
// steps began at every row equally often. They do not, so it is not what decoding gives: see the page above.
std::vector<double> Shares(const RankTable& table, const Topology& tree);

}  // namespace hydrant::tree
