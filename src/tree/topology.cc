// SPDX-License-Identifier: Apache-2.0
#include "tree/topology.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "hydrant/error.h"

namespace hydrant::tree {
namespace {

using Path = std::vector<int32_t>;

constexpr const char* kListHint =
    "list every node ([[0],[0,0],[1]]), or only the leaves ([[0,0],[1]]): prefixes are implied when no listed path is "
    "a "
    "prefix of another";

[[noreturn]] void Refuse(const std::string& where, const std::string& problem, const std::string& hint = kListHint) {
  throw UserError(where + ": " + problem, hint);
}

Path Prefix(const Path& path, size_t length) {
  return Path(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length));
}

void CheckPath(const Path& path, size_t index, const std::string& where) {
  if (path.empty()) {
    Refuse(where, "path number " + std::to_string(index) + " (counted from 0) is empty: the root is never listed");
  }
  if (path.size() > static_cast<size_t>(Topology::kMaxDepth)) {
    Refuse(where, "path " + PathString(path) + " is " + std::to_string(path.size()) + " deep, at most " +
                      std::to_string(Topology::kMaxDepth) + " is possible");
  }
  if (std::ranges::any_of(path, [](int32_t rank) { return rank < 0; })) {
    Refuse(where, "path " + PathString(path) + " has a negative rank, expected child ranks from 0");
  }
}

std::set<Path> Distinct(std::span<const Path> paths, const std::string& where) {
  std::set<Path> distinct;
  for (size_t i = 0; i < paths.size(); ++i) {
    CheckPath(paths[i], i, where);
    if (!distinct.insert(paths[i]).second) Refuse(where, "path " + PathString(paths[i]) + " is listed twice");
  }
  return distinct;
}

// In the sorted set a path is directly followed by the paths that continue it.
bool HoldsAPrefix(const std::set<Path>& paths) {
  const Path* previous = nullptr;
  for (const Path& path : paths) {
    if (previous != nullptr && previous->size() < path.size() &&
        std::equal(previous->begin(), previous->end(), path.begin())) {
      return true;
    }
    previous = &path;
  }
  return false;
}

void CheckPrefixes(std::span<const Path> paths, const std::set<Path>& distinct, const std::string& where) {
  for (const Path& path : paths) {
    for (size_t length = 1; length < path.size(); ++length) {
      const Path prefix = Prefix(path, length);
      if (!distinct.contains(prefix)) {
        Refuse(where, "path " + PathString(path) + " lacks its prefix " + PathString(prefix) + ", which is not listed");
      }
    }
  }
}

void AddPrefixes(std::span<const Path> paths, std::set<Path>& distinct, const std::string& where) {
  for (const Path& path : paths) {
    for (size_t length = path.size() - 1; length > 0; --length) {
      if (!distinct.insert(Prefix(path, length)).second) break;  // then its own prefixes are there too
    }
    if (distinct.size() >= static_cast<size_t>(Topology::kMaxNodes)) {
      Refuse(where, "with the prefixes of path " + PathString(path) + " the tree has more than " +
                        std::to_string(Topology::kMaxNodes) + " nodes, root included");
    }
  }
}

void CheckRanks(std::span<const Path> paths, const std::set<Path>& distinct, const std::string& where) {
  for (const Path& path : paths) {
    for (size_t length = 1; length <= path.size(); ++length) {
      Path sibling = Prefix(path, length);
      if (sibling.back() == 0) continue;
      --sibling.back();
      if (!distinct.contains(sibling)) {
        Refuse(where, "path " + PathString(path) + " skips a rank: the tree lacks " + PathString(sibling) +
                          " (children are numbered 0, 1, 2, ... without gaps)");
      }
    }
  }
}

}  // namespace

std::string PathString(std::span<const int32_t> path) {
  constexpr size_t kShown = 16;
  std::string text = "[";
  for (size_t i = 0; i < std::min(path.size(), kShown); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(path[i]);
  }
  text += path.size() > kShown ? ",...]" : "]";
  return text;
}

Topology::Topology() : parent_{-1}, depth_{0}, child_rank_{0}, first_child_{-1}, num_children_{0}, level_begin_{0, 1} {}

Topology Topology::FromPaths(std::span<const std::vector<int32_t>> paths, const std::string& where) {
  if (paths.size() >= static_cast<size_t>(kMaxNodes)) {
    Refuse(
        where,
        "lists " + std::to_string(paths.size()) + " paths, at most " + std::to_string(kMaxNodes - 1) + " are possible",
        "a tree of some dozen nodes is the usual size; 'mc_sim_7b_63' has 63");
  }
  std::set<Path> distinct = Distinct(paths, where);
  if (HoldsAPrefix(distinct)) {
    CheckPrefixes(paths, distinct, where);
  } else {
    AddPrefixes(paths, distinct, where);
  }
  CheckRanks(paths, distinct, where);
  std::vector<Path> sorted(distinct.begin(), distinct.end());
  std::ranges::stable_sort(sorted, {}, [](const Path& path) { return path.size(); });

  Topology topology;
  std::map<Path, NodeId> ids = {{Path{}, 0}};
  for (const Path& path : sorted) {
    topology.Append(ids.at(Prefix(path, path.size() - 1)), path.back());
    ids.emplace(path, topology.num_nodes() - 1);
  }
  return topology;
}

Topology Topology::FromParents(std::span<const NodeId> parents) {
  HYDRANT_CHECK(!parents.empty() && parents[0] == -1);
  Topology topology;
  for (const NodeId parent : parents.subspan(1)) {
    HYDRANT_CHECK(parent >= 0 && parent < topology.num_nodes());
    topology.Append(parent, topology.num_children_[static_cast<size_t>(parent)]);
  }
  return topology;
}

// Parents must come in ascending order and children in order of rank.
void Topology::Append(NodeId parent, int32_t rank) {
  const auto p = static_cast<size_t>(parent);
  const NodeId node = num_nodes();
  HYDRANT_CHECK(parent >= 0 && parent >= parent_.back() && rank == num_children_[p]);
  const int32_t depth = depth_[p] + 1;
  if (depth > max_depth()) level_begin_.push_back(node);
  level_begin_.back() = node + 1;
  if (rank == 0) first_child_[p] = node;
  ++num_children_[p];
  parent_.push_back(parent);
  depth_.push_back(depth);
  child_rank_.push_back(rank);
  first_child_.push_back(-1);
  num_children_.push_back(0);
}

int32_t Topology::max_children_at(int32_t d) const {
  const auto begin = num_children_.begin() + level_begin(d);
  return *std::max_element(begin, begin + width_at(d));
}

int32_t Topology::num_leaves() const { return static_cast<int32_t>(std::ranges::count(num_children_, 0)); }

std::vector<NodeId> Topology::PathTo(NodeId node) const {
  std::vector<NodeId> path;
  for (; node >= 0; node = parent_[static_cast<size_t>(node)]) path.push_back(node);
  std::ranges::reverse(path);
  return path;
}

std::vector<int32_t> Topology::Preorder() const {
  std::vector<int32_t> sizes(parent_.size(), 1), numbers(parent_.size(), 0);
  for (size_t node = parent_.size(); --node > 0;) sizes[static_cast<size_t>(parent_[node])] += sizes[node];
  for (size_t node = 1; node < parent_.size(); ++node) {  // a sibling before it is the node before it
    numbers[node] =
        child_rank_[node] == 0 ? numbers[static_cast<size_t>(parent_[node])] + 1 : numbers[node - 1] + sizes[node - 1];
  }
  return numbers;
}

std::vector<std::vector<int32_t>> Topology::Paths() const {
  std::vector<Path> all(parent_.size());
  for (size_t node = 1; node < parent_.size(); ++node) {
    all[node] = all[static_cast<size_t>(parent_[node])];
    all[node].push_back(child_rank_[node]);
  }
  all.erase(all.begin());
  return all;
}

Topology Topology::CutToDepth(int32_t d) const {
  HYDRANT_CHECK(d >= 0);
  return Truncate(d >= max_depth() ? num_nodes() : level_begin(d + 1));
}

Topology Topology::Truncate(int32_t n) const {
  HYDRANT_CHECK(n >= 1);
  Topology prefix;
  for (int32_t node = 1; node < std::min(n, num_nodes()); ++node) {
    prefix.Append(parent_[static_cast<size_t>(node)], child_rank_[static_cast<size_t>(node)]);
  }
  return prefix;
}

Topology Topology::Keep(std::span<const uint8_t> kept) const {
  HYDRANT_CHECK(kept.size() == parent_.size() && kept[0] != 0);
  Topology rest;
  std::vector<NodeId> ids(parent_.size(), -1);
  ids[0] = 0;
  for (size_t node = 1; node < parent_.size(); ++node) {
    if (kept[node] == 0) continue;
    ids[node] = rest.num_nodes();
    rest.Append(ids[static_cast<size_t>(parent_[node])], child_rank_[node]);
  }
  return rest;
}

void CheckFits(const Topology& topology, const Limits& limits, const std::string& where) {
  if (topology.max_depth() > limits.num_heads) {
    const std::vector<std::vector<int32_t>> paths = topology.Paths();
    const auto deeper = std::ranges::find_if(
        paths, [&](const Path& path) { return path.size() > static_cast<size_t>(limits.num_heads); });
    Refuse(where,
           "path " + PathString(*deeper) + " is " + std::to_string(deeper->size()) + " deep, but the draft has " +
               std::to_string(limits.num_heads) + (limits.num_heads == 1 ? " head" : " heads"),
           "give a tree of at most " + std::to_string(limits.num_heads) + " levels; this one has " +
               std::to_string(topology.max_depth()));
  }
  if (topology.num_nodes() > limits.max_nodes) {
    Refuse(where,
           "the tree has " + std::to_string(topology.num_nodes()) + " nodes, root included; the row budget is " +
               std::to_string(limits.max_nodes),
           "give a smaller tree");
  }
  for (int32_t d = 0; d <= topology.max_depth(); ++d) {
    if (topology.max_children_at(d) <= limits.vocab_size) continue;
    Refuse(where,
           "a node of depth " + std::to_string(d) + " has " + std::to_string(topology.max_children_at(d)) +
               " children, but the vocabulary has " + std::to_string(limits.vocab_size) + " tokens",
           "give a narrower tree");
  }
}

}  // namespace hydrant::tree
