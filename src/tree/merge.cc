// SPDX-License-Identifier: Apache-2.0
#include "tree/merge.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace hydrant::tree {
namespace {

class Merger {
 public:
  explicit Merger(std::span<const TokenTree* const> trees) : trees_(trees), num_trees_(trees.size()) {
    HYDRANT_CHECK(!trees.empty());
    parents_.push_back(-1);
    tokens_.push_back(trees.front()->tokens.front());
    scores_.push_back(1);
    own_.assign(num_trees_, 0);
    // Level by level, so that nodes come in a topology's order.
    for (NodeId node = 0; static_cast<size_t>(node) < tokens_.size(); ++node) AddChildren(node);
  }

  void Give(TokenTree& merged) && {
    const auto lacks_scores = [](const TokenTree* tree) { return tree->tokens.size() > 1 && tree->scores.empty(); };
    if (std::ranges::any_of(trees_, lacks_scores)) scores_.clear();
    merged.source = DraftSource::kBase;
    for (const TokenTree* tree : trees_) {
      if (tree->tokens.size() > 1) merged.source = tree->source;
    }
    merged.topology = Topology::FromParents(parents_);
    merged.tokens = std::move(tokens_);
    merged.scores = std::move(scores_);
    merged.draft_probs.clear();
  }

 private:
  NodeId& OwnNode(size_t merged, size_t tree) { return own_[merged * num_trees_ + tree]; }

  void AddChildren(NodeId node) {
    const size_t first = tokens_.size();
    for (size_t t = 0; t < num_trees_; ++t) {
      const NodeId own = OwnNode(static_cast<size_t>(node), t);
      if (own < 0) continue;
      const Topology& topology = trees_[t]->topology;
      const auto o = static_cast<size_t>(own);
      for (int32_t i = 0; i < topology.num_children()[o]; ++i) AddChild(node, first, t, topology.first_child()[o] + i);
    }
  }

  void AddChild(NodeId parent, size_t first, size_t tree, NodeId own) {
    const auto o = static_cast<size_t>(own);
    const int32_t token = trees_[tree]->tokens[o];
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto place = static_cast<size_t>(std::find(begin, tokens_.end(), token) - tokens_.begin());
    if (place == tokens_.size()) {
      parents_.push_back(parent);
      tokens_.push_back(token);
      scores_.push_back(0);
      own_.resize(own_.size() + num_trees_, -1);
    }
    OwnNode(place, tree) = own;
    if (!trees_[tree]->scores.empty()) scores_[place] = std::max(scores_[place], trees_[tree]->scores[o]);
  }

  std::span<const TokenTree* const> trees_;
  size_t num_trees_;
  std::vector<NodeId> parents_, own_;  // own_: [merged nodes, trees] the node of that path in each tree, or -1
  std::vector<int32_t> tokens_;
  std::vector<float> scores_;
};

}  // namespace

void Merge(std::span<const TokenTree* const> trees, TokenTree& merged) { Merger(trees).Give(merged); }

}  // namespace hydrant::tree
