// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tree/parse.h"
#include "tree/random_tree.h"
#include "verify/toy_model.h"
#include "verify/verify.h"

namespace hydrant::verify::typical_test {
namespace {

using testing::ElementsAre;

// The slow twin, in the authors' order: every root-to-leaf path on its own, its longest surviving prefix, then the
// largest sum of log probabilities among the longest.
std::vector<tree::NodeId> NaivePath(const tree::TokenTree& drafted, const Matrix& logits, double temperature,
                                    double epsilon, double alpha) {
  const tree::Topology& topology = drafted.topology;
  std::vector<tree::NodeId> best;
  double best_likelihood = 0;
  for (tree::NodeId leaf = 0; leaf < topology.num_nodes(); ++leaf) {
    if (topology.num_children()[static_cast<size_t>(leaf)] > 0) continue;
    const std::vector<tree::NodeId> path = topology.PathTo(leaf);
    std::vector<tree::NodeId> kept;
    double likelihood = 0;
    for (size_t i = 1; i < path.size(); ++i) {
      const auto row = logits.row_span(path[i - 1]);
      double sum = 0, entropy = 0;
      for (const float logit : row) sum += std::exp(logit / temperature);
      for (const float logit : row) {
        const double prob = std::exp(logit / temperature) / sum;
        entropy -= prob * std::log(prob + 1e-5);
      }
      const auto token = static_cast<size_t>(drafted.tokens[static_cast<size_t>(path[i])]);
      const double prob = std::exp(row[token] / temperature) / sum;
      if (!(prob > std::min(epsilon, alpha * std::exp(-entropy)))) break;
      kept.push_back(path[i]);
      likelihood += std::log(prob);
    }
    if (kept.size() > best.size() || (kept.size() == best.size() && likelihood > best_likelihood + 1e-12)) {
      best = kept;
      best_likelihood = likelihood;
    }
  }
  return best;
}

struct Fixture {
  tree::TokenTree drafted;
  Matrix logits;
  SamplingOptions sampling;
  AcceptOptions accept = {.rule = AcceptRule::kTypical, .root = RootChoice::kArgmax};
  std::vector<int32_t> prompt, output;
  sampling::NoiseCache noise = sampling::NoiseCache(&kernels::PortableKernels(), 3, kToyVocab);
  Verifier verifier;

  Verdict Accept() {
    VerifyInput input;
    input.tree = &drafted;
    input.logits = logits;
    input.sampling = &sampling;
    input.accept = &accept;
    input.prompt = prompt;
    input.output = output;
    input.noise = &noise;
    return verifier.Accept(input);
  }
};

TEST(TypicalTest, EqualsTheNaiveRule) {
  std::mt19937 random(31);
  size_t accepted = 0, deepest = 0;
  for (int round = 0; round < 400; ++round) {
    Fixture f;
    f.drafted.topology = tree::RandomTopology(random, 1 + static_cast<int32_t>(random() % 64), 5, 8);
    f.output = {static_cast<int32_t>(random() % kToyVocab)};
    f.drafted.tokens.assign(static_cast<size_t>(f.drafted.topology.num_nodes()), f.output[0]);
    for (tree::NodeId node = 0; node < f.drafted.topology.num_nodes(); ++node) {
      const auto n = static_cast<size_t>(node);
      std::vector<int32_t> ranked;
      sampling::TopK(ToyLogits(ContextOf(f.drafted, node, {}, f.output)), kToyVocab, ranked);
      if (random() % 3 == 0) std::shuffle(ranked.begin(), ranked.end(), random);
      for (int32_t i = 0; i < f.drafted.topology.num_children()[n]; ++i) {
        f.drafted.tokens[static_cast<size_t>(f.drafted.topology.first_child()[n] + i)] = ranked[static_cast<size_t>(i)];
      }
    }
    f.logits = ToyForward(f.drafted, {}, f.output);
    f.sampling.temperature = 0.5F + static_cast<float>(random() % 100) / 50;
    f.accept.epsilon = 0.01F * static_cast<float>(1 + random() % 30);
    f.accept.alpha = 0.05F * static_cast<float>(1 + random() % 19);
    f.sampling.top_k = 1;  // filters do not count
    const Verdict verdict = f.Accept();
    const std::vector<tree::NodeId> expected =
        NaivePath(f.drafted, f.logits, f.sampling.temperature, f.accept.epsilon, f.accept.alpha);
    ASSERT_EQ(verdict.path, expected) << round;
    const tree::NodeId last = expected.empty() ? 0 : expected.back();
    ASSERT_EQ(verdict.bonus, sampling::Argmax(f.logits.row_span(last)));
    accepted += expected.size();
    deepest = std::max(deepest, expected.size());
  }
  EXPECT_GT(accepted, 400U);
  EXPECT_EQ(deepest, 5U);
}

Fixture TwoBranches() {
  Fixture f;
  f.drafted.topology = tree::ParseTree("[[0,0],[1,0]]").topology;  // root - 1 - 3, 2 - 4
  f.drafted.tokens = {9, 5, 6, 7, 8};
  f.output = {9};
  f.logits.Resize(5, kToyVocab);
  for (int64_t row = 0; row < 5; ++row) std::ranges::fill(f.logits.row_span(row), 0.0F);
  f.sampling.temperature = 1;
  return f;
}

TEST(TypicalTest, LikelierBranchWinsAmongEquals) {
  Fixture f = TwoBranches();
  f.logits.row(0)[5] = 6.0F;  // 0.60 against 0.37
  f.logits.row(0)[6] = 5.5F;
  f.logits.row(1)[7] = 3.0F;  // 0.47: 0.28 in all, against 0.36
  f.logits.row(2)[8] = 9.0F;
  EXPECT_THAT(f.Accept().path, ElementsAre(2, 4));
  f.logits.row(1)[7] = 12.0F;  // 0.60 in all
  EXPECT_THAT(f.Accept().path, ElementsAre(1, 3));
}

TEST(TypicalTest, LongerBranchWinsOverLikelier) {
  Fixture f = TwoBranches();
  f.logits.row(0)[5] = 9.0F;
  f.logits.row(0)[6] = 8.0F;
  f.logits.row(1)[0] = 20.0F;  // token 7 is impossible after node 1
  f.logits.row(2)[8] = 9.0F;
  EXPECT_THAT(f.Accept().path, ElementsAre(2, 4));
}

TEST(TypicalTest, TemperatureZeroIsGreedy) {
  Fixture f = TwoBranches();
  f.sampling.temperature = 0;
  f.logits.row(0)[5] = 1.0F;
  f.logits.row(0)[6] = 1.5F;
  f.logits.row(2)[3] = 1.0F;
  const Verdict verdict = f.Accept();
  EXPECT_THAT(verdict.path, ElementsAre(2));
  EXPECT_EQ(verdict.bonus, 3);
}

TEST(TypicalTest, SampledRootGoesThroughTheFullChain) {
  Fixture f = TwoBranches();
  f.accept.root = RootChoice::kSampled;
  f.logits.row(0)[5] = 8.0F;
  f.logits.row(1)[0] = 9.0F;  // only one child stays; the next root comes from row 1
  f.logits.row(1)[2] = 8.9F;
  f.sampling.top_k = 2;
  std::vector<float> scratch;
  bool other = false;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    f.noise = sampling::NoiseCache(&kernels::PortableKernels(), seed, kToyVocab);
    const Verdict verdict = f.Accept();
    EXPECT_THAT(verdict.path, ElementsAre(1));
    EXPECT_TRUE(verdict.bonus == 0 || verdict.bonus == 2);
    const std::vector<int32_t> path = {5};
    EXPECT_EQ(verdict.bonus,
              sampling::ChooseToken(f.logits.row_span(1), f.sampling, {{}, f.output, path}, f.noise, 2, scratch));
    other |= verdict.bonus == 2;
  }
  EXPECT_TRUE(other);
}

TEST(TypicalTest, RowsWithoutNumbersAcceptNothing) {
  Fixture f = TwoBranches();
  std::ranges::fill(f.logits.row_span(0), std::nanf(""));
  const Verdict verdict = f.Accept();
  EXPECT_THAT(verdict.path, ElementsAre());
  EXPECT_EQ(verdict.bonus, 0);
}

}  // namespace
}  // namespace hydrant::verify::typical_test
