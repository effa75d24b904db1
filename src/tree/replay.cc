// SPDX-License-Identifier: Apache-2.0
#include "tree/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hydrant/error.h"

namespace hydrant::tree {
namespace {

void CheckTree(const RankTable& table, const Topology& tree) {
  if (tree.max_depth() > table.num_levels) {
    throw UserError("the tree has " + std::to_string(tree.max_depth()) + " levels, and the record has ranks of " +
                    std::to_string(table.num_levels));
  }
  const int32_t most = tree.num_nodes() > 1 ? std::ranges::max(tree.num_children()) : 0;
  if (most > table.num_ranks) {
    throw UserError("a node of the tree has " + std::to_string(most) + " children, and the record has ranks 0 to " +
                    std::to_string(table.num_ranks - 1));
  }
}

// Follows a row's ranks down the tree. `visit(node)` is called for each accepted node. Returns how many there are.
template <typename Visit>
int32_t Walk(std::span<const uint8_t> row, const Topology& tree, const Visit& visit) {
  int32_t accepted = 0;
  auto node = size_t{0};
  for (const uint8_t rank : row) {
    if (rank >= tree.num_children()[node]) break;  // so is kNoRank: a node has at most that many
    node = static_cast<size_t>(tree.first_child()[node] + rank);
    visit(node);
    ++accepted;
  }
  return accepted;
}

// tokens_per_step is a ratio of two sums over replies: of tokens (their rows), and of steps.
double StandardError(const RankTable& table, const Replayed& replayed) {
  double sum = 0, count = 0;
  for (size_t reply = 0; reply < replayed.replies.size(); ++reply) {
    if (replayed.replies[reply].empty()) continue;
    const auto steps = static_cast<double>(replayed.replies[reply].size());
    const double difference = table.num_rows(reply) - replayed.tokens_per_step * steps;
    sum += difference * difference;
    count += 1;
  }
  if (count < 2) return std::numeric_limits<double>::infinity();
  return std::sqrt(count / (count - 1) * sum) / static_cast<double>(replayed.num_steps);
}

}  // namespace

std::string ProblemIn(const RankTable& table) {
  if (table.num_levels < 1 || table.num_levels > Topology::kMaxDepth) {
    return "has ranks of " + std::to_string(table.num_levels) + " levels, expected 1 to " +
           std::to_string(Topology::kMaxDepth);
  }
  if (table.num_ranks < 1 || table.num_ranks > kNoRank) {
    return "has " + std::to_string(table.num_ranks) + " ranks, expected 1 to " + std::to_string(kNoRank);
  }
  for (size_t reply = 0; reply < table.replies.size(); ++reply) {
    const std::string name = "reply " + std::to_string(reply);
    if (table.replies[reply].size() % static_cast<size_t>(table.num_levels) != 0) return name + " has part of a row";
    for (int32_t r = 0; r < table.num_rows(reply); ++r) {
      const std::span<const uint8_t> row = table.Row(reply, r);
      const auto end = std::ranges::find(row, kNoRank);
      if (std::any_of(row.begin(), end, [&](uint8_t rank) { return rank >= table.num_ranks; }) ||
          std::any_of(end, row.end(), [](uint8_t rank) { return rank != kNoRank; })) {
        return name + " has a rank in row " + std::to_string(r) + " that no recording gives";
      }
    }
  }
  return "";
}

Replayed Replay(const RankTable& table, const Topology& tree) {
  CheckTree(table, tree);
  Replayed replayed;
  replayed.replies.resize(table.replies.size());
  for (size_t reply = 0; reply < table.replies.size(); ++reply) {
    const int32_t rows = table.num_rows(reply);
    for (int32_t t = 0; t < rows;) {
      const int32_t accepted = Walk(table.Row(reply, t), tree, [](size_t) {});
      replayed.replies[reply].push_back({.root = t, .num_accepted = accepted});
      replayed.num_emitted += accepted + 1;
      t += accepted + 1;
    }
    replayed.num_steps += static_cast<int64_t>(replayed.replies[reply].size());
    replayed.num_tokens += rows;
  }
  if (replayed.num_steps > 0) {
    replayed.tokens_per_step = static_cast<double>(replayed.num_tokens) / static_cast<double>(replayed.num_steps);
  }
  replayed.standard_error = StandardError(table, replayed);
  return replayed;
}

std::vector<double> Shares(const RankTable& table, const Topology& tree) {
  CheckTree(table, tree);
  std::vector<int64_t> count(static_cast<size_t>(tree.num_nodes()), 0);
  int64_t rows = 0;
  for (size_t reply = 0; reply < table.replies.size(); ++reply) {
    for (int32_t t = 0; t < table.num_rows(reply); ++t) Walk(table.Row(reply, t), tree, [&](size_t n) { ++count[n]; });
    rows += table.num_rows(reply);
  }
  std::vector<double> shares;
  for (const int64_t one : count)
    shares.push_back(static_cast<double>(one) / static_cast<double>(std::max<int64_t>(rows, 1)));
  shares.front() = 1;
  return shares;
}

}  // namespace hydrant::tree
