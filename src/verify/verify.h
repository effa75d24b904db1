// SPDX-License-Identifier: Apache-2.0
// Which nodes of a drafted tree survive, and which token follows. Blind to how the tree was drafted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hydrant/generation.h"
#include "sampling/choose.h"
#include "tree/token_tree.h"

namespace hydrant::verify {

struct Verdict {
  std::vector<tree::NodeId> path;  // accepted nodes in order, the root left out
  int32_t bonus = 0;               // the token the base model chooses after the last accepted node: the next root

  int32_t num_accepted() const { return static_cast<int32_t>(path.size()); }
  int32_t num_emitted() const { return num_accepted() + 1; }
};

struct VerifyInput {
  const tree::TokenTree* tree = nullptr;
  kernels::ConstRows logits;      // [N, V] of the base model
  std::span<const int32_t> rows;  // [N] each node's row of logits; empty: row i is node i's
  const SamplingOptions* sampling = nullptr;
  const AcceptOptions* accept = nullptr;
  std::span<const int32_t> prompt;        // history for penalties
  std::span<const int32_t> output;        // tokens generated so far; the last one is the tree's root
  sampling::NoiseCache* noise = nullptr;  // of this sequence; output.size() is the position of a child of the root
};

// The base model's logits at `node` [V].
std::span<const float> RowOf(const VerifyInput& input, tree::NodeId node);

// Keeps buffers between steps; one per sequence or thread.
class Verifier {
 public:
  // Exact rule: walk with the base model's own choice at each node. The others: docs/algorithms/typical_acceptance.md
  // and rejection.md. The rejection rule needs trees whose drafts were drawn (TokenTree::draft_probs).
  Verdict Accept(const VerifyInput& input);

 private:
  Verdict AcceptExact(const VerifyInput& input);
  Verdict AcceptTypical(const VerifyInput& input);
  Verdict AcceptRejection(const VerifyInput& input);
  tree::NodeId TryChildren(const VerifyInput& input, tree::NodeId node, int64_t position);
  void ReadProbabilities(const VerifyInput& input, tree::NodeId node);
  // The base model's own choice at `node`, whose path below the root is path_tokens_.
  int32_t Choose(const VerifyInput& input, tree::NodeId node);

  std::vector<float> scratch_;        // [V]
  std::vector<double> probs_;         // [V]
  std::vector<double> draft_probs_;   // [V]
  std::vector<double> uniforms_;      // [children of a node]
  std::vector<double> log_probs_;     // [N]
  std::vector<int32_t> path_tokens_;  // of the nodes walked so far, the root left out
};

}  // namespace hydrant::verify
