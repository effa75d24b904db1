// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tree/operations.h"
#include "tree/parse.h"
#include "tree/random_tree.h"
#include "verify/toy_model.h"
#include "verify/verify.h"

namespace hydrant::verify::exact_test {
namespace {

using testing::ElementsAre;

constexpr size_t kLength = 60;
const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5};

std::vector<int32_t> PlainDecoding(const SamplingOptions& options) {
  sampling::NoiseCache noise(&kernels::PortableKernels(), options.seed, kToyVocab);
  std::vector<int32_t> output, context = kPrompt;
  std::vector<float> scratch;
  while (output.size() < kLength) {
    output.push_back(sampling::ChooseToken(ToyLogits(context), options, {kPrompt, output, {}}, noise,
                                           static_cast<int64_t>(output.size()), scratch));
    context.push_back(output.back());
  }
  return output;
}

// A drafter that knows the base model too well, but for some noise: so walks go deep and end everywhere.
void Draft(std::mt19937& random, const SamplingOptions& options, bool coupled, std::span<const int32_t> output,
           sampling::NoiseCache& noise, tree::TokenTree& drafted) {
  const tree::Topology& topology = drafted.topology;
  drafted.tokens.assign(static_cast<size_t>(topology.num_nodes()), output.back());
  std::vector<float> scratch;
  std::vector<int32_t> ranked;
  std::normal_distribution<float> normal(0, 1.5F);
  for (tree::NodeId node = 0; node < topology.num_nodes(); ++node) {
    const auto n = static_cast<size_t>(node);
    std::vector<float> logits = ToyLogits(ContextOf(drafted, node, kPrompt, output));
    for (float& logit : logits) logit += normal(random);
    const auto position = static_cast<int64_t>(output.size()) + topology.depth()[n];
    sampling::RankCandidates(logits, options, coupled, {kPrompt, output, {}}, noise, position,
                             topology.num_children()[n], scratch, ranked);
    tree::FillChildren(topology.first_child()[n], topology.num_children()[n], ranked.data(), drafted.tokens.data());
  }
}

// The same rows in any order, and where each one is.
Matrix Shuffled(const Matrix& logits, std::mt19937& random, std::vector<int32_t>& rows) {
  rows.resize(static_cast<size_t>(logits.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  std::ranges::shuffle(rows, random);
  Matrix shuffled(logits.rows(), logits.cols());
  for (int64_t r = 0; r < logits.rows(); ++r) {
    std::ranges::copy(logits.row_span(r), shuffled.row(rows[static_cast<size_t>(r)]));
  }
  return shuffled;
}

struct Decoded {
  std::vector<int32_t> output;
  double mean_emitted = 0;
};

Decoded TreeDecoding(const SamplingOptions& options, const tree::Topology* fixed, bool coupled, uint32_t seed) {
  std::mt19937 random(seed);
  sampling::NoiseCache noise(&kernels::PortableKernels(), options.seed, kToyVocab);
  Verifier verifier;
  const AcceptOptions accept;
  std::vector<float> scratch;
  Decoded decoded;
  std::vector<int32_t>& output = decoded.output;
  output.push_back(sampling::ChooseToken(ToyLogits(kPrompt), options, {kPrompt, {}, {}}, noise, 0, scratch));
  double steps = 0;
  for (; output.size() < kLength; ++steps) {
    tree::TokenTree drafted;
    drafted.topology =
        fixed != nullptr ? *fixed : tree::RandomTopology(random, 1 + static_cast<int32_t>(random() % 40), 5, 6);
    Draft(random, options, coupled, output, noise, drafted);
    std::vector<int32_t> rows;
    const Matrix logits = Shuffled(ToyForward(drafted, kPrompt, output), random, rows);
    VerifyInput input;
    input.tree = &drafted;
    input.logits = logits;
    input.rows = rows;
    input.sampling = &options;
    input.accept = &accept;
    input.prompt = kPrompt;
    input.output = output;
    input.noise = &noise;
    const Verdict verdict = verifier.Accept(input);
    for (const tree::NodeId node : verdict.path) output.push_back(drafted.tokens[static_cast<size_t>(node)]);
    output.push_back(verdict.bonus);
    noise.Forget(static_cast<int64_t>(output.size()));
    decoded.mean_emitted += verdict.num_emitted();
  }
  decoded.mean_emitted /= steps;
  output.resize(kLength);
  return decoded;
}

TEST(ExactTest, TreeDecodingEqualsPlainDecoding) {
  const SamplingOptions settings[] = {
      {},
      {.repetition_penalty = 1.3F, .presence_penalty = 0.3F, .frequency_penalty = 0.5F},
      {.temperature = 0.8F, .top_p = 0.9F},
      {.temperature = 1.2F, .top_k = 5, .min_p = 0.05F, .seed = 77},
      {.temperature = 1.0F, .repetition_penalty = 1.2F, .frequency_penalty = 1.0F, .seed = 1234567890123},
  };
  const tree::Topology chain = tree::Preset("chain"), published = tree::Preset("mc_sim_7b_63");
  for (const SamplingOptions& options : settings) {
    const std::vector<int32_t> plain = PlainDecoding(options);
    for (const tree::Topology* topology : {&chain, &published, static_cast<const tree::Topology*>(nullptr)}) {
      for (const bool coupled : {true, false}) {
        const Decoded decoded = TreeDecoding(options, topology, coupled, 5);
        EXPECT_EQ(decoded.output, plain) << options.temperature << " " << coupled;
        EXPECT_GT(decoded.mean_emitted, 1.2);
      }
    }
  }
}

TEST(ExactTest, SeedsMatter) {
  EXPECT_NE(PlainDecoding({.temperature = 1, .seed = 1}), PlainDecoding({.temperature = 1, .seed = 2}));
}

TEST(ExactTest, WalksByHand) {
  tree::TokenTree drafted;
  drafted.topology = tree::ParseTree("[[0,0],[0,1],[1]]").topology;  // root - 1 (3, 4), 2
  drafted.tokens = {9, 5, 6, 7, 8};
  Matrix logits(5, 10);
  std::fill_n(logits.data(), 5 * logits.stride(), 0.0F);
  const SamplingOptions sampling;
  const AcceptOptions accept;
  sampling::NoiseCache noise(&kernels::PortableKernels(), 0, 10);
  const std::vector<int32_t> output = {9};
  VerifyInput input;
  input.tree = &drafted;
  input.logits = logits;
  input.sampling = &sampling;
  input.accept = &accept;
  input.output = output;
  input.noise = &noise;
  Verifier verifier;
  // All equal: the lowest id, which no child carries.
  EXPECT_THAT(verifier.Accept(input).path, ElementsAre());
  EXPECT_EQ(verifier.Accept(input).bonus, 0);
  logits.row(0)[5] = 1;
  logits.row(1)[8] = 1;
  logits.row(4)[2] = 1;
  const Verdict verdict = verifier.Accept(input);
  EXPECT_THAT(verdict.path, ElementsAre(1, 4));
  EXPECT_EQ(verdict.bonus, 2);
  EXPECT_EQ(verdict.num_accepted(), 2);
  EXPECT_EQ(verdict.num_emitted(), 3);
  // A node's own path counts as output: token 8 may not be repeated.
  logits.row(4)[8] = 3;
  EXPECT_EQ(verifier.Accept(input).bonus, 8);
  const SamplingOptions penalised = {.presence_penalty = 2.5F};
  input.sampling = &penalised;
  EXPECT_EQ(verifier.Accept(input).bonus, 2);
}

}  // namespace
}  // namespace hydrant::verify::exact_test
