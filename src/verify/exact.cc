// SPDX-License-Identifier: Apache-2.0
// The exact rule: from the root, ask at each node what plain decoding would choose there; a child that carries that
// token is accepted, otherwise the token is the bonus. Only nodes on the walk cost a choice.
#include "tree/operations.h"
#include "verify/verify.h"

namespace hydrant::verify {

Verdict Verifier::AcceptExact(const VerifyInput& input) {
  const tree::Topology& topology = input.tree->topology;
  const std::vector<int32_t>& tokens = input.tree->tokens;
  Verdict verdict;
  verdict.path.resize(static_cast<size_t>(topology.max_depth()));
  path_tokens_.clear();
  const auto choose = [&](tree::NodeId node) {
    if (node > 0) path_tokens_.push_back(tokens[static_cast<size_t>(node)]);
    return Choose(input, node);
  };
  const int32_t accepted = tree::WalkTree(topology.first_child().data(), topology.num_children().data(), tokens.data(),
                                          choose, verdict.path.data(), &verdict.bonus);
  verdict.path.resize(static_cast<size_t>(accepted));
  return verdict;
}

}  // namespace hydrant::verify
