// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "sampling/chi_square.h"
#include "sampling/draws.h"
#include "tree/parse.h"
#include "verify/toy_model.h"
#include "verify/verify.h"

namespace hydrant::verify::rejection_test {
namespace {

using sampling::NoiseCache;

const std::vector<int32_t> kPrompt = {3, 8, 3};
const std::vector<int32_t> kOutput = {5};

// The drafter: another function of the context, a little like the base model's.
std::vector<float> DraftLogits(std::span<const int32_t> context) {
  std::vector<float> logits = ToyLogits(context);
  std::vector<int32_t> longer(context.begin(), context.end());
  longer.push_back(1000);
  const std::vector<float> other = ToyLogits(longer);
  for (size_t t = 0; t < logits.size(); ++t) logits[t] = 0.6F * logits[t] + 0.5F * other[t];
  return logits;
}

struct Case {
  const char* tree;
  SamplingOptions sampling;
};

std::vector<int32_t> PathTokens(const tree::TokenTree& drafted, tree::NodeId node) {
  std::vector<int32_t> tokens;
  for (const tree::NodeId on_path : drafted.topology.PathTo(node)) {
    if (on_path > 0) tokens.push_back(drafted.tokens[static_cast<size_t>(on_path)]);
  }
  return tokens;
}

// Fills the tree's nodes with drawn tokens, by the logits of `logits_of`.
template <typename LogitsOf>
void DrawTree(tree::TokenTree& drafted, const SamplingOptions& sampling, NoiseCache& draws, const LogitsOf& logits_of) {
  const tree::Topology& topology = drafted.topology;
  const auto nodes = static_cast<size_t>(topology.num_nodes());
  drafted.tokens.assign(nodes, kOutput.back());
  drafted.draft_probs.assign(nodes, {});
  std::vector<float> scratch;
  for (size_t n = 0; n < nodes; ++n) {
    const auto node = static_cast<tree::NodeId>(n);
    const int32_t children = topology.num_children()[n];
    if (children == 0) continue;
    const std::vector<int32_t> path = PathTokens(drafted, node);
    std::vector<int32_t> tokens;
    sampling::DrawCandidates(logits_of(ContextOf(drafted, node, kPrompt, kOutput)), sampling, {kPrompt, kOutput, path},
                             draws, static_cast<int64_t>(1 + path.size()), children, scratch, tokens,
                             drafted.draft_probs[n]);
    std::ranges::copy(tokens, drafted.tokens.begin() + topology.first_child()[n]);
  }
}

// One step.
template <typename LogitsOf>
std::vector<int32_t> Emitted(const Case& one, uint64_t seed, const LogitsOf& logits_of) {
  tree::TokenTree drafted;
  drafted.topology = tree::ParseTree(one.tree).topology;
  NoiseCache noise(&kernels::PortableKernels(), seed, kToyVocab);
  NoiseCache draws(&kernels::PortableKernels(), seed, kToyVocab, NoiseCache::Stream::kDrafts);
  DrawTree(drafted, one.sampling, draws, logits_of);
  const Matrix logits = ToyForward(drafted, kPrompt, kOutput);
  const AcceptOptions accept = {.rule = AcceptRule::kRejection};
  VerifyInput input;
  input.tree = &drafted;
  input.logits = logits;
  input.sampling = &one.sampling;
  input.accept = &accept;
  input.prompt = kPrompt;
  input.output = kOutput;
  input.noise = &noise;
  Verifier verifier;
  const Verdict verdict = verifier.Accept(input);
  std::vector<int32_t> tokens = PathTokens(drafted, verdict.path.empty() ? 0 : verdict.path.back());
  tokens.push_back(verdict.bonus);
  return tokens;
}

std::vector<double> PlainProbabilities(const SamplingOptions& sampling, const std::vector<int32_t>& path) {
  std::vector<int32_t> context = kPrompt;
  context.insert(context.end(), kOutput.begin(), kOutput.end());
  context.insert(context.end(), path.begin(), path.end());
  std::vector<float> scratch;
  std::vector<double> probs;
  sampling::DrawProbabilities(ToyLogits(context), sampling, {kPrompt, kOutput, path}, scratch, probs);
  return probs;
}

const Case kCases[] = {
    {"[[0,0,0,0]]", {.temperature = 1}},
    {"[[0,0,0],[0,1],[1,0],[2],[3]]", {.temperature = 1.5F}},
    {"[[0,0,0],[0,1],[1,0],[2],[3],[4],[5],[6],[7]]", {.temperature = 0.8F, .top_k = 3}},
    {"[[0,0],[1,0],[2,0]]", {.temperature = 1.2F, .top_p = 0.9F, .min_p = 0.02F}},
    {"[[0,0],[0,1],[1]]", {.temperature = 1, .repetition_penalty = 1.5F, .presence_penalty = 0.7F}},
};

// The first token, and the next one behind each first token, are distributed as plain decoding draws them.
TEST(RejectionTest, TokensAreDistributedAsPlainDecodingDrawsThem) {
  constexpr int kSteps = 8000;
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.tree);
    std::vector<int64_t> first(kToyVocab, 0);
    std::map<int32_t, std::vector<int64_t>> second;
    int64_t emitted = 0;
    for (uint64_t seed = 0; seed < kSteps; ++seed) {
      const std::vector<int32_t> tokens = Emitted(one, seed, DraftLogits);
      ++first[static_cast<size_t>(tokens[0])];
      emitted += static_cast<int64_t>(tokens.size());
      if (tokens.size() < 2) continue;
      std::vector<int64_t>& behind = second[tokens[0]];
      behind.resize(kToyVocab, 0);
      ++behind[static_cast<size_t>(tokens[1])];
    }
    EXPECT_LT(sampling::ChiSquareDeviation(first, PlainProbabilities(one.sampling, {})), 4);
    for (const auto& [token, counts] : second) {
      EXPECT_LT(sampling::ChiSquareDeviation(counts, PlainProbabilities(one.sampling, {token})), 4) << token;
    }
    EXPECT_GT(static_cast<double>(emitted) / kSteps, 1.4);
  }
}

// Drafts from the model's own distribution are always kept.
TEST(RejectionTest, RightDistributionsAreNeverRejected) {
  for (const Case& one : kCases) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const std::vector<int32_t> tokens =
          Emitted(one, seed, [](std::span<const int32_t> context) { return ToyLogits(context); });
      EXPECT_EQ(static_cast<int32_t>(tokens.size()), tree::ParseTree(one.tree).topology.max_depth() + 1);
    }
  }
}

// A drafter that never draws what the model says costs its drafts, and changes no distribution.
TEST(RejectionTest, DraftsThatAreNeverRightChangeNothing) {
  const Case one = {"[[0,0],[1],[2]]", {.temperature = 1, .top_k = 4}};
  std::vector<int64_t> first(kToyVocab, 0);
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    const std::vector<int32_t> tokens = Emitted(one, seed, [](std::span<const int32_t> context) {
      std::vector<float> logits = ToyLogits(context);
      for (float& logit : logits) logit = -logit;
      return logits;
    });
    ASSERT_EQ(tokens.size(), 1U);
    ++first[static_cast<size_t>(tokens[0])];
  }
  EXPECT_LT(sampling::ChiSquareDeviation(first, PlainProbabilities(one.sampling, {})), 4);
}

TEST(RejectionTest, RowsWithoutNumbersAcceptNothing) {
  const Case one = {"[[0,0],[1]]", {.temperature = 1}};
  const auto nothing = [](std::span<const int32_t>) {
    return std::vector<float>(static_cast<size_t>(kToyVocab), std::nanf(""));
  };
  EXPECT_EQ(Emitted(one, 3, nothing).size(), 1U);
}

}  // namespace
}  // namespace hydrant::verify::rejection_test
