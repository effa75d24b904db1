// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include "base/check.h"

namespace hydrant::verify {

Verdict Verifier::Accept(const VerifyInput& input) {
  const tree::TokenTree& drafted = *input.tree;
  HYDRANT_CHECK(drafted.tokens.size() == static_cast<size_t>(drafted.topology.num_nodes()));
  HYDRANT_CHECK(input.logits.rows >= drafted.topology.num_nodes() && input.logits.cols > 0);
  HYDRANT_CHECK(input.rows.empty() || input.rows.size() == drafted.tokens.size());
  HYDRANT_CHECK(input.sampling != nullptr && input.accept != nullptr && input.noise != nullptr);
  if (input.sampling->temperature > 0) {  // at 0 every rule is the greedy one
    if (input.accept->rule == AcceptRule::kTypical) return AcceptTypical(input);
    if (input.accept->rule == AcceptRule::kRejection) return AcceptRejection(input);
  }
  return AcceptExact(input);
}

int32_t Verifier::Choose(const VerifyInput& input, tree::NodeId node) {
  const sampling::TokenHistory history = {input.prompt, input.output, path_tokens_};
  const auto position = static_cast<int64_t>(input.output.size() + path_tokens_.size());
  return sampling::ChooseToken(RowOf(input, node), *input.sampling, history, *input.noise, position, scratch_);
}

std::span<const float> RowOf(const VerifyInput& input, tree::NodeId node) {
  const int64_t row = input.rows.empty() ? node : input.rows[static_cast<size_t>(node)];
  return {input.logits.row(row), static_cast<size_t>(input.logits.cols)};
}

}  // namespace hydrant::verify
