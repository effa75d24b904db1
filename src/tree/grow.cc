// SPDX-License-Identifier: Apache-2.0
#include "tree/grow.h"

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace hydrant::tree {
namespace {

// A tree that grows by one node at a time. Node 0 is the root.
class GrowingTree {
 public:
  struct Node {
    std::vector<int32_t> path;
    std::vector<size_t> children = {};  // by rank
    int64_t visited = 0, all = 0;       // rows that would reach its next child
  };

  GrowingTree() : nodes_(1) {}
  std::vector<Node>& nodes() { return nodes_; }

  void AddChild(size_t parent) {
    std::vector<int32_t> path = nodes_[parent].path;
    path.push_back(static_cast<int32_t>(nodes_[parent].children.size()));
    nodes_[parent].children.push_back(nodes_.size());
    nodes_.push_back({.path = std::move(path)});
  }

  // Where a row's walk ends, and whether its next rank is that of the node's next child.
  std::pair<size_t, bool> EndOf(std::span<const uint8_t> row) const {
    size_t node = 0;
    for (const uint8_t rank : row) {
      const std::vector<size_t>& children = nodes_[node].children;
      if (rank >= children.size()) return {node, rank != kNoRank && rank == children.size()};
      node = children[rank];
    }
    return {node, false};
  }

 private:
  std::vector<Node> nodes_;
};

void Count(const RankTable& table, GrowingTree& tree) {
  for (GrowingTree::Node& node : tree.nodes()) node.visited = node.all = 0;
  for (size_t reply = 0; reply < table.replies.size(); ++reply) {
    int32_t root = 0;  // of the next step
    for (int32_t t = 0; t < table.num_rows(reply); ++t) {
      const auto [end, has_next] = tree.EndOf(table.Row(reply, t));
      GrowingTree::Node& node = tree.nodes()[end];
      node.all += has_next ? 1 : 0;
      if (t != root) continue;
      node.visited += has_next ? 1 : 0;
      root += static_cast<int32_t>(node.path.size()) + 1;
    }
  }
}

// The node that gets the next child; the number of nodes: none.
size_t BestParent(GrowingTree& tree, const GrowOptions& options) {
  const std::vector<GrowingTree::Node>& nodes = tree.nodes();
  size_t best = nodes.size();
  // More is better of the counts, less of what breaks ties.
  const auto key = [&](const GrowingTree::Node& node) {
    const int64_t first = options.rows == CountedRows::kAll ? node.all : node.visited;
    return std::tuple(-first, -node.all, node.path.size());
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].all == 0 || static_cast<int32_t>(nodes[i].path.size()) >= options.max_depth) continue;
    const bool better = best == nodes.size() || key(nodes[i]) < key(nodes[best]) ||
                        (key(nodes[i]) == key(nodes[best]) && nodes[i].path < nodes[best].path);
    if (better) best = i;
  }
  return best;
}

// [K, W] Of the rows that have a rank at the level before, the share with each rank.
std::vector<std::vector<double>> RankShares(const RankTable& table) {
  const auto levels = static_cast<size_t>(table.num_levels);
  std::vector<std::vector<double>> shares(levels, std::vector<double>(static_cast<size_t>(table.num_ranks), 0));
  std::vector<double> rows(levels, 0);
  for (size_t reply = 0; reply < table.replies.size(); ++reply) {
    for (int32_t t = 0; t < table.num_rows(reply); ++t) {
      const std::span<const uint8_t> row = table.Row(reply, t);
      for (size_t d = 0; d < levels; ++d) {
        ++rows[d];
        if (row[d] == kNoRank) break;
        ++shares[d][row[d]];
      }
    }
  }
  for (size_t d = 0; d < levels; ++d) {
    for (double& share : shares[d]) share /= std::max(rows[d], 1.0);
  }
  return shares;
}

struct Candidate {
  double product = 0;
  std::vector<int32_t> path;
};

}  // namespace

std::vector<std::vector<int32_t>> GrowTree(const RankTable& table, const GrowOptions& options) {
  HYDRANT_CHECK(options.max_nodes >= 0 && options.max_nodes < Topology::kMaxNodes);
  GrowingTree tree;
  std::vector<std::vector<int32_t>> paths;
  while (static_cast<int32_t>(paths.size()) < options.max_nodes) {
    Count(table, tree);
    const size_t parent = BestParent(tree, options);
    if (parent == tree.nodes().size()) break;
    tree.AddChild(parent);
    paths.push_back(tree.nodes().back().path);
  }
  return paths;
}

std::vector<std::vector<int32_t>> GrowIndependentTree(const RankTable& table, const GrowOptions& options) {
  const std::vector<std::vector<double>> shares = RankShares(table);
  const auto depth = static_cast<size_t>(std::min(options.max_depth, table.num_levels));
  std::vector<Candidate> open;  // each the next child of a node that is there
  const auto add = [&](double above, std::vector<int32_t> path, int32_t rank) {
    const size_t level = path.size();
    path.push_back(rank);
    if (level >= depth || rank >= table.num_ranks) return;
    const double share = shares[level][static_cast<size_t>(rank)];
    if (above * share > 0) open.push_back({above * share, std::move(path)});
  };
  add(1, {}, 0);
  std::vector<std::vector<int32_t>> paths;
  while (!open.empty() && static_cast<int32_t>(paths.size()) < options.max_nodes) {
    const auto best = std::ranges::min_element(open, {}, [](const Candidate& candidate) {
      return std::tuple(-candidate.product, candidate.path.size(), candidate.path);
    });
    const Candidate taken = std::move(*best);
    open.erase(best);
    const auto rank = static_cast<size_t>(taken.path.back());
    const double above = taken.product / shares[taken.path.size() - 1][rank];
    add(taken.product, taken.path, 0);
    add(above, {taken.path.begin(), taken.path.end() - 1}, taken.path.back() + 1);
    paths.push_back(taken.path);
  }
  return paths;
}

Topology FirstNodes(const std::vector<std::vector<int32_t>>& paths, size_t count) {
  if (count == 0) return Topology();
  return Topology::FromPaths(std::span(paths).first(count));
}

}  // namespace hydrant::tree
