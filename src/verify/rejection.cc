// SPDX-License-Identifier: Apache-2.0
// The rejection rule: a drafted token x that was drawn from q stays with probability min(1, p(x) / q(x)), where p is
// what plain decoding draws from. Otherwise the next one is drawn from what p has above q. Then the token that comes
// out is distributed by p, whatever q is (Leviathan et al., 2023, arXiv 2211.17192, appendix A.1). Where a node has
// several children, each was drawn from q without those before it, and is tried against what is left of p (Jeon et al.,
// 2024, arXiv 2402.14160, algorithm "recursive rejection sampling").
#include <algorithm>

#include "base/check.h"
#include "sampling/draws.h"
#include "verify/verify.h"

namespace hydrant::verify {
namespace {

double Sum(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

// p becomes what it has above q.
void TakeAway(std::span<const double> q, std::span<double> p) {
  for (size_t t = 0; t < p.size(); ++t) p[t] = std::max(0.0, p[t] - q[t]);
}

void Scale(double factor, std::span<double> values) {
  for (double& value : values) value *= factor;
}

}  // namespace

// The child of `node` that stays, or -1. probs_ is p, and in the end what is left of it.
tree::NodeId Verifier::TryChildren(const VerifyInput& input, tree::NodeId node, int64_t position) {
  const tree::Topology& topology = input.tree->topology;
  const auto n = static_cast<size_t>(node);
  const int32_t children = topology.num_children()[n];
  const std::vector<float>& drawn_from = input.tree->draft_probs[n];
  HYDRANT_CHECK(drawn_from.size() == probs_.size());
  draft_probs_.assign(drawn_from.begin(), drawn_from.end());
  uniforms_.resize(static_cast<size_t>(children));
  input.noise->Uniforms(position, uniforms_);
  for (int32_t i = 0; i < children; ++i) {
    const tree::NodeId child = topology.first_child()[n] + i;
    const auto token = static_cast<size_t>(input.tree->tokens[static_cast<size_t>(child)]);
    double& q = draft_probs_[token];
    if (!(q > 0)) return -1;  // drawn only to fill the tree: q had no more tokens
    if (uniforms_[static_cast<size_t>(i)] * q < probs_[token]) return child;
    TakeAway(draft_probs_, probs_);
    const double left = Sum(probs_);
    if (left > 0) {
      Scale(1 / left, probs_);
    } else {
      // p and q are the same up to rounding, so that nothing is left. What plain decoding would draw is as good.
      ReadProbabilities(input, node);
      return -1;
    }
    q = 0;
    const double others = Sum(draft_probs_);
    if (!(others > 0)) return -1;
    Scale(1 / others, draft_probs_);
  }
  return -1;
}

void Verifier::ReadProbabilities(const VerifyInput& input, tree::NodeId node) {
  const sampling::TokenHistory history = {input.prompt, input.output, path_tokens_};
  sampling::DrawProbabilities(RowOf(input, node), *input.sampling, history, scratch_, probs_);
}

Verdict Verifier::AcceptRejection(const VerifyInput& input) {
  const tree::Topology& topology = input.tree->topology;
  HYDRANT_CHECK(topology.num_nodes() == 1 || input.tree->draft_probs.size() == input.tree->tokens.size());
  Verdict verdict;
  path_tokens_.clear();
  for (tree::NodeId node = 0;;) {
    const auto position = static_cast<int64_t>(input.output.size() + path_tokens_.size());
    if (topology.num_children()[static_cast<size_t>(node)] == 0) {
      verdict.bonus = Choose(input, node);
      return verdict;
    }
    ReadProbabilities(input, node);
    if (!(Sum(probs_) > 0)) {  // no finite logit
      verdict.bonus = Choose(input, node);
      return verdict;
    }
    const tree::NodeId child = TryChildren(input, node, position);
    if (child < 0) {
      verdict.bonus = sampling::DrawFrom(probs_, input.noise->Row(position));
      return verdict;
    }
    verdict.path.push_back(child);
    path_tokens_.push_back(input.tree->tokens[static_cast<size_t>(child)]);
    node = child;
  }
}

}  // namespace hydrant::verify
