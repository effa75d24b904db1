// SPDX-License-Identifier: Apache-2.0
// Typical acceptance as Medusa and Hydra define it: a drafted token stays when the base model finds it likely enough
// for how undecided it is. Lossy by design.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/generic/math_inl.h"
#include "verify/verify.h"

namespace hydrant::verify {
namespace {

// sum over t of term(t): 16 partial sums by index mod 16, then the tree 8-4-2-1.
template <typename Term>
double Sum(size_t size, Term term) {
  double partial[16] = {};
  const size_t whole = size / 16 * 16;
  for (size_t t = 0; t < whole; t += 16) {
    for (size_t i = 0; i < 16; ++i) partial[i] += term(t + i);
  }
  for (size_t t = whole; t < size; ++t) partial[t - whole] += term(t);
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  return partial[0];
}

// What a token's probability must exceed to be accepted. Fills probs_ with softmax(logits / T), before penalties and
// filters. The entropy uses log(prob + 1e-5), as the authors compute it.
double ReadRow(std::span<const float> logits, const SamplingOptions& sampling, const AcceptOptions& accept,
               std::vector<float>& scaled, std::vector<double>& probs) {
  scaled.resize(logits.size());
  probs.resize(logits.size());
  sampling::ProcessLogits(logits, {.temperature = sampling.temperature}, {}, scaled);
  for (size_t t = 0; t < probs.size(); ++t) probs[t] = kernels::ExpDouble(scaled[t]);
  const double sum = Sum(probs.size(), [&](size_t t) { return probs[t]; });
  if (!(sum > 0)) return std::numeric_limits<double>::infinity();  // no finite logit: nothing is likely
  for (double& prob : probs) prob /= sum;
  const double entropy = -Sum(probs.size(), [&](size_t t) { return probs[t] * kernels::LogDouble(probs[t] + 1e-5); });
  return std::min(static_cast<double>(accept.epsilon),
                  static_cast<double>(accept.alpha) * kernels::ExpDouble(-entropy));
}

}  // namespace

// Parents come before their children, so one pass finds all survivors. Only survivors with children need a softmax.
Verdict Verifier::AcceptTypical(const VerifyInput& input) {
  const tree::Topology& topology = input.tree->topology;
  const std::vector<int32_t>& tokens = input.tree->tokens;
  constexpr double kDropped = -std::numeric_limits<double>::infinity();
  log_probs_.assign(tokens.size(), kDropped);  // of each path from the root; -infinity: does not survive
  log_probs_[0] = 0;
  tree::NodeId best = 0;
  for (tree::NodeId node = 0; node < topology.num_nodes(); ++node) {
    const auto n = static_cast<size_t>(node);
    if (log_probs_[n] == kDropped) continue;
    // The deepest survivor wins; at equal depth the likelier path, and then the first one.
    const bool deeper = topology.depth()[n] > topology.depth()[static_cast<size_t>(best)];
    if (deeper || log_probs_[n] > log_probs_[static_cast<size_t>(best)]) best = node;
    if (topology.num_children()[n] == 0) continue;
    const double threshold = ReadRow(RowOf(input, node), *input.sampling, *input.accept, scratch_, probs_);
    for (int32_t i = 0; i < topology.num_children()[n]; ++i) {
      const auto child = static_cast<size_t>(topology.first_child()[n] + i);
      HYDRANT_CHECK(tokens[child] >= 0 && tokens[child] < input.logits.cols);
      const double prob = probs_[static_cast<size_t>(tokens[child])];
      if (prob > threshold) log_probs_[child] = log_probs_[n] + kernels::LogDouble(std::max(prob, 1e-300));
    }
  }
  Verdict verdict;
  verdict.path = topology.PathTo(best);
  verdict.path.erase(verdict.path.begin());
  path_tokens_.clear();
  for (const tree::NodeId node : verdict.path) path_tokens_.push_back(tokens[static_cast<size_t>(node)]);
  verdict.bonus =
      input.accept->root == RootChoice::kArgmax ? sampling::Argmax(RowOf(input, best)) : Choose(input, best);
  return verdict;
}

}  // namespace hydrant::verify
