// SPDX-License-Identifier: Apache-2.0
#include "tree/yields.h"

#include <algorithm>
#include <array>
#include <queue>
#include <string>
#include <utility>

#include "base/json.h"

namespace hydrant::tree {
namespace {

using base::Json;
using base::JsonView;

// Belief about acceptance before anything was seen: the chance that the base chooses the candidate of a rank, if it
// chose none of the ranks before. (The rates of the embedded model's Medusa and Hydra heads and of Vicuna's published
// heads are close to it.)
constexpr std::array<double, 10> kRankPrior = {.6, .3, .2, .15, .12, .1, .09, .08, .07, .06};
constexpr double kPriorSteps = 1;  // steps that this belief weighs for the first candidate
constexpr double kRankSteps = 4;   // the same for the other candidates
constexpr double kNodeSteps = 4;   // steps that the mean of a rank weighs for a single node of that rank

constexpr double kMostSteps = 1e6;
constexpr size_t kMostEntries = 4096;

struct Entry {
  double offered = 0, accepted = 0;
};

Entry EntryOf(const JsonView& view) {
  const auto number = [&view](const char* key, double most) {
    const JsonView field = view.At(key);
    const double value = field.Number();
    if (!(value >= 0 && value <= most)) field.Fail("a number from 0 to " + std::to_string(most));
    return value;
  };
  const double offered = number("offered", kMostSteps);
  return {.offered = offered, .accepted = number("accepted", offered)};
}

size_t CheckedSize(const JsonView& list) {
  if (!list.is_array() || list.Size() > kMostEntries) list.Fail("a list of at most " + std::to_string(kMostEntries));
  return list.Size();
}

// By rank, the chance of a candidate that none before it is right: what was seen, drawn towards the belief.
template <typename Seen>
std::array<double, kRankPrior.size()> ChancesOf(const std::array<Seen, kRankPrior.size()>& seen) {
  std::array<double, kRankPrior.size()> chances{};
  for (size_t rank = 0; rank < chances.size(); ++rank) {
    // Belief in the other candidates follows the first one's rate: heads that miss with it miss with the others too.
    const double belief = rank == 0 ? kRankPrior[0] : kRankPrior[rank] * std::min(1.3, chances[0] / kRankPrior[0]);
    const double steps = rank == 0 ? kPriorSteps : kRankSteps;
    chances[rank] = (seen[rank].accepted + steps * belief) / (seen[rank].offered + steps);
  }
  return chances;
}

}  // namespace

void ShapeYields::Add(const Topology& topology) {
  std::vector<int32_t> index(static_cast<size_t>(topology.num_nodes()), 0);  // in the forest, of each node
  for (size_t node = 1; node < index.size(); ++node) {
    const int32_t parent = index[static_cast<size_t>(topology.parent()[node])], rank = topology.child_rank()[node];
    std::vector<int32_t>& siblings = forest_[static_cast<size_t>(parent)].children;
    if (static_cast<size_t>(rank) == siblings.size()) {  // siblings come in order
      siblings.push_back(static_cast<int32_t>(forest_.size()));
      forest_.push_back({.parent = parent, .rank = rank, .children = {}});
    }
    index[node] = forest_[static_cast<size_t>(parent)].children[static_cast<size_t>(rank)];
  }
  index.erase(index.begin());
  nodes_.push_back(std::move(index));
}

void ShapeYields::Take(std::span<const VisitedNode> walk) {
  int32_t node = 0;
  for (const VisitedNode& visited : walk) {
    const std::vector<int32_t>& children = forest_[static_cast<size_t>(node)].children;
    const int32_t seen = visited.accepted < 0 ? visited.num_children : visited.accepted + 1;
    for (int32_t rank = 0; rank < seen && static_cast<size_t>(rank) < children.size(); ++rank) {
      Node& child = forest_[static_cast<size_t>(children[static_cast<size_t>(rank)])];
      child.offered += 1;
      if (rank == visited.accepted) child.accepted += 1;
    }
    if (visited.accepted < 0 || static_cast<size_t>(visited.accepted) >= children.size()) return;
    node = children[static_cast<size_t>(visited.accepted)];
  }
}

void ShapeYields::Decay(double factor) {
  for (Node& node : forest_) {
    node.offered *= factor;
    node.accepted *= factor;
  }
}

void ShapeYields::Forget(double steps) {
  const double seen = forest_.front().children.empty() ? 0 : forest_[1].offered;
  if (seen > steps) Decay(steps / seen);
}

// A node's chance of acceptance: its own rate, drawn towards the rate of all nodes of its rank, which in turn is drawn
// towards the belief.
std::vector<double> ShapeYields::Tokens() const {
  std::array<Entry, kRankPrior.size()> seen{};
  const auto slot = [](const Node& node) { return std::min(static_cast<size_t>(node.rank), kRankPrior.size() - 1); };
  for (size_t i = 1; i < forest_.size(); ++i) {
    seen[slot(forest_[i])].offered += forest_[i].offered;
    seen[slot(forest_[i])].accepted += forest_[i].accepted;
  }
  const std::array<double, kRankPrior.size()> by_rank = ChancesOf(seen);
  std::vector<double> reached(forest_.size(), 1);
  for (size_t i = 0; i < forest_.size(); ++i) {
    double left = reached[i];  // chance that the walk is here and has taken no child so far
    for (const int32_t child : forest_[i].children) {
      const Node& node = forest_[static_cast<size_t>(child)];
      const double chance = (node.accepted + kNodeSteps * by_rank[slot(node)]) / (node.offered + kNodeSteps);
      reached[static_cast<size_t>(child)] = left * chance;
      left *= 1 - chance;
    }
  }
  std::vector<double> tokens(nodes_.size(), 1);
  for (size_t tree = 0; tree < nodes_.size(); ++tree) {
    for (const int32_t node : nodes_[tree]) tokens[tree] += reached[static_cast<size_t>(node)];
  }
  return tokens;
}

std::vector<int32_t> ShapeYields::PathOf(int32_t node) const {
  std::vector<int32_t> path;
  for (; node > 0; node = forest_[static_cast<size_t>(node)].parent) {
    path.push_back(forest_[static_cast<size_t>(node)].rank);
  }
  std::ranges::reverse(path);
  return path;
}

int32_t ShapeYields::NodeAt(std::span<const int64_t> path) const {
  int32_t node = 0;
  for (const int64_t rank : path) {
    const std::vector<int32_t>& children = forest_[static_cast<size_t>(node)].children;
    if (static_cast<size_t>(rank) >= children.size()) return -1;
    node = children[static_cast<size_t>(rank)];
  }
  return node;
}

Json ShapeYields::Learned() const {
  Json nodes = Json::array();
  for (size_t node = 1; node < forest_.size(); ++node) {
    if (forest_[node].offered < 0.01) continue;
    nodes.push_back({{"path", PathOf(static_cast<int32_t>(node))},
                     {"offered", forest_[node].offered},
                     {"accepted", forest_[node].accepted}});
  }
  return nodes;
}

void ShapeYields::Learn(const JsonView& nodes) {
  const size_t count = CheckedSize(nodes);
  for (size_t i = 0; i < count; ++i) {
    const Entry entry = EntryOf(nodes.At(i));
    const int32_t node = NodeAt(nodes.At(i).At("path").IntList(0, Topology::kMaxNodes));
    if (node <= 0) continue;
    forest_[static_cast<size_t>(node)].offered = entry.offered;
    forest_[static_cast<size_t>(node)].accepted = entry.accepted;
  }
}

void GrownYields::Add(const DynamicTreeOptions& size) {
  sizes_.push_back(size);
  if (size.nodes == 0) return;
  Ranks& ranks = by_depth_[size.depth];
  ranks.resize(std::max(ranks.size(), static_cast<size_t>(size.nodes)));
}

void GrownYields::Take(std::span<const VisitedNode> walk, std::span<const GrownNode> nodes,
                       const DynamicTreeOptions& size) {
  for (const VisitedNode& visited : walk) {
    const int32_t seen = visited.accepted < 0 ? visited.num_children : visited.accepted + 1;
    for (size_t rank = 0; rank < std::min(static_cast<size_t>(seen), kRanks); ++rank) {
      candidates_[rank].offered += 1;
      if (static_cast<int32_t>(rank) == visited.accepted) candidates_[rank].accepted += 1;
    }
  }
  for (auto& [depth, ranks] : by_depth_) {
    if (depth > size.depth) break;
    size_t rank = 0;
    for (const GrownNode& node : nodes) {
      if (node.depth > depth) continue;
      if (rank == ranks.size()) break;
      ranks[rank].offered += 1;
      if (node.accepted) ranks[rank].accepted += 1;
      ++rank;
    }
    if (depth < size.depth) continue;
    // Nodes that the drafts did not give, or that were too unlikely, are never accepted.
    for (; rank < ranks.size() && rank < static_cast<size_t>(size.nodes); ++rank) ranks[rank].offered += 1;
  }
}

void GrownYields::Decay(double factor) {
  for (Seen& seen : candidates_) {
    seen.offered *= factor;
    seen.accepted *= factor;
  }
  for (auto& [depth, ranks] : by_depth_) {
    for (Seen& seen : ranks) {
      seen.offered *= factor;
      seen.accepted *= factor;
    }
  }
}

void GrownYields::Forget(double steps) {
  double most = 0;
  for (const auto& [depth, ranks] : by_depth_) most = std::max(most, ranks.front().offered);
  if (most > steps) Decay(steps / most);
}

// Chances of the best paths of at most `depth` levels, best first, where the candidates of every node have the same
// chances. Each path that is taken opens two: its next sibling and its first child.
std::vector<double> GrownYields::Believed(int32_t depth, size_t count) const {
  static_assert(kRanks == kRankPrior.size());
  std::array<double, kRanks> chances = ChancesOf(candidates_);
  double left = 1;  // chance that none before is right
  for (double& chance : chances) left -= chance = left * chance;
  struct Path {
    double chance;
    int32_t depth;
    size_t rank;
    bool operator<(const Path& other) const { return chance < other.chance; }
  };
  std::priority_queue<Path> open;
  open.push({chances[0], 1, 0});
  std::vector<double> best;
  while (best.size() < count && !open.empty()) {
    const Path path = open.top();
    open.pop();
    best.push_back(path.chance);
    if (path.rank + 1 < kRanks) {
      open.push({path.chance / chances[path.rank] * chances[path.rank + 1], path.depth, path.rank + 1});
    }
    if (path.depth < depth) open.push({path.chance * chances[0], path.depth + 1, 0});
  }
  best.resize(count, 0);
  return best;
}

// The chance of a node: its own rate, drawn towards the belief.
std::vector<double> GrownYields::Tokens() const {
  std::map<int32_t, std::vector<double>> chances;
  for (const auto& [depth, ranks] : by_depth_) {
    std::vector<double> own = Believed(depth, ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      own[rank] = (ranks[rank].accepted + kNodeSteps * own[rank]) / (ranks[rank].offered + kNodeSteps);
    }
    chances[depth] = std::move(own);
  }
  std::vector<double> tokens;
  for (const DynamicTreeOptions& size : sizes_) {
    double sum = 1;
    for (size_t rank = 0; rank < static_cast<size_t>(size.nodes); ++rank) sum += chances.at(size.depth)[rank];
    tokens.push_back(sum);
  }
  return tokens;
}

Json GrownYields::Learned() const {
  Json nodes = Json::array();
  for (size_t rank = 0; rank < kRanks; ++rank) {  // depth 0: candidates of all nodes
    nodes.push_back({{"depth", 0},
                     {"rank", rank},
                     {"offered", candidates_[rank].offered},
                     {"accepted", candidates_[rank].accepted}});
  }
  for (const auto& [depth, ranks] : by_depth_) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].offered < 0.01) continue;
      nodes.push_back(
          {{"depth", depth}, {"rank", rank}, {"offered", ranks[rank].offered}, {"accepted", ranks[rank].accepted}});
    }
  }
  return nodes;
}

void GrownYields::Learn(const JsonView& nodes) {
  const size_t count = CheckedSize(nodes);
  for (size_t i = 0; i < count; ++i) {
    const JsonView view = nodes.At(i);
    const Entry entry = EntryOf(view);
    const auto depth = static_cast<int32_t>(view.At("depth").Int(0, Topology::kMaxDepth));
    const auto rank = static_cast<size_t>(view.At("rank").Int(0, Topology::kMaxNodes));
    if (depth == 0 && rank < kRanks) candidates_[rank] = {.offered = entry.offered, .accepted = entry.accepted};
    const auto ranks = by_depth_.find(depth);
    if (ranks == by_depth_.end() || rank >= ranks->second.size()) continue;
    ranks->second[rank] = {.offered = entry.offered, .accepted = entry.accepted};
  }
}

}  // namespace hydrant::tree
