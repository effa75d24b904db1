// SPDX-License-Identifier: Apache-2.0
#include "draft/growing_trees.h"

#include "tree/operations.h"

namespace hydrant::draft {

void GrowingTrees::Plant(std::span<ProposeInput> inputs) {
  for (ProposeInput& input : inputs) {
    if (input.shape == nullptr) {
      input.tree->Reset(input.output.back());
    } else {
      input.shape->Plant(input.budget, input.output.back(), *input.tree);
    }
  }
}

void GrowingTrees::Start(std::span<ProposeInput> inputs) {
  inputs_ = inputs;
  paths_.resize(inputs.size());
  for (size_t s = 0; s < inputs.size(); ++s) {
    paths_[s].clear();
    tree::TokenTree& tree = *inputs[s].tree;
    tree.draft_probs.clear();
    if (inputs[s].draws != nullptr) tree.draft_probs.resize(tree.tokens.size());
    if (!(inputs[s].min_probability > 0)) continue;
    paths_[s].assign(tree.tokens.size(), 0);
    paths_[s].front() = 1;
  }
}

bool GrowingTrees::Expands(size_t input, tree::NodeId node) const {
  return paths_[input].empty() || paths_[input][static_cast<size_t>(node)] >= inputs_[input].min_probability;
}

void GrowingTrees::Fill(size_t input, tree::NodeId node, std::span<const int32_t> candidates,
                        std::span<const float> probabilities) {
  tree::TokenTree& tree = *inputs_[input].tree;
  const auto n = static_cast<size_t>(node);
  const int32_t first = tree.topology.first_child()[n], children = tree.topology.num_children()[n];
  tree::FillChildren(first, children, candidates.data(), tree.tokens.data());
  if (!tree.draft_probs.empty()) tree.draft_probs[n].assign(probabilities.begin(), probabilities.end());
  std::vector<float>& paths = paths_[input];
  if (paths.empty()) return;
  for (int32_t rank = 0; rank < children; ++rank) {
    const float probability = probabilities[static_cast<size_t>(rank)];
    if (!(probability >= inputs_[input].min_probability)) break;  // nor are those after it, or it is NaN
    paths[static_cast<size_t>(first + rank)] = paths[n] * probability;
  }
}

void GrowingTrees::Finish() {
  for (size_t s = 0; s < inputs_.size(); ++s) {
    if (paths_[s].empty()) continue;
    tree::TokenTree& tree = *inputs_[s].tree;
    kept_.clear();
    tree.scores.clear();
    for (size_t node = 0; node < paths_[s].size(); ++node) {
      kept_.push_back(paths_[s][node] > 0 ? 1 : 0);
      if (kept_.back() == 0) continue;
      tree.tokens[tree.scores.size()] = tree.tokens[node];
      tree.scores.push_back(paths_[s][node]);
    }
    if (tree.scores.size() == kept_.size()) continue;
    tree.tokens.resize(tree.scores.size());
    tree.topology = tree.topology.Keep(kept_);
  }
}

}  // namespace hydrant::draft
