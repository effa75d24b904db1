// SPDX-License-Identifier: Apache-2.0
// A base model for tests without weights: logits are a fixed random function of the whole context.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "sampling/choose.h"
#include "tensor/tensor.h"
#include "tree/token_tree.h"

namespace hydrant::verify {

inline constexpr int32_t kToyVocab = 24;

inline std::vector<float> ToyLogits(std::span<const int32_t> context) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int32_t token : context) hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001b3;
  std::mt19937_64 random(hash);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kToyVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// prompt + output + the tokens of the nodes on the path to `node`, root left out (it is output.back()).
inline std::vector<int32_t> ContextOf(const tree::TokenTree& drafted, tree::NodeId node,
                                      std::span<const int32_t> prompt, std::span<const int32_t> output) {
  std::vector<int32_t> context(prompt.begin(), prompt.end());
  context.insert(context.end(), output.begin(), output.end());
  for (const tree::NodeId on_path : drafted.topology.PathTo(node)) {
    if (on_path > 0) context.push_back(drafted.tokens[static_cast<size_t>(on_path)]);
  }
  return context;
}

// The base model's logits at every node: what one verification forward gives.
inline Matrix ToyForward(const tree::TokenTree& drafted, std::span<const int32_t> prompt,
                         std::span<const int32_t> output) {
  Matrix logits(drafted.topology.num_nodes(), kToyVocab);
  for (tree::NodeId node = 0; node < drafted.topology.num_nodes(); ++node) {
    std::ranges::copy(ToyLogits(ContextOf(drafted, node, prompt, output)), logits.row(node));
  }
  return logits;
}

}  // namespace hydrant::verify
