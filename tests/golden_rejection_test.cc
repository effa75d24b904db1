// SPDX-License-Identifier: Apache-2.0
// The rejection rule against the exact law of one step (golden/assisted/rejection), and through the engine against the
// law of the first two tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "sampling/chi_square.h"
#include "sampling/draws.h"
#include "tests/golden_case.h"
#include "tests/test_data.h"
#include "tree/parse.h"
#include "verify/verify.h"

namespace hydrant::test::golden_rejection_test {
namespace {

using sampling::ChiSquareDeviation;
using sampling::NoiseCache;

constexpr int32_t kVocab = 512, kDepth = 4;

std::string Folder() { return SharedDir() + "/golden/assisted"; }

Matrix LogOf(const Values& values) {
  Matrix logits(values.shape[0], values.shape[1]);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    for (int64_t c = 0; c < logits.cols(); ++c) {
      logits.row(r)[c] = std::log(values.data[static_cast<size_t>(r * logits.cols() + c)]);
    }
  }
  return logits;
}

std::vector<double> Doubles(const Values& values) { return {values.data.begin(), values.data.end()}; }

// One step with the case's rows, whatever the drawn tokens are.
std::vector<int32_t> Step(const Matrix& target, const Matrix& draft, uint64_t seed) {
  const SamplingOptions sampling = {.temperature = 1};
  const AcceptOptions accept = {.rule = AcceptRule::kRejection};
  const std::vector<int32_t> output = {1};
  tree::TokenTree drafted;
  drafted.topology = tree::Preset("chain");
  drafted.tokens = output;
  NoiseCache noise(&kernels::PortableKernels(), seed, kVocab);
  NoiseCache draws(&kernels::PortableKernels(), seed, kVocab, NoiseCache::Stream::kDrafts);
  std::vector<float> scratch;
  for (int32_t d = 0; d < kDepth; ++d) {
    std::vector<int32_t> token;
    drafted.draft_probs.emplace_back();
    sampling::DrawCandidates(draft.row_span(d), sampling, {}, draws, 1 + d, 1, scratch, token,
                             drafted.draft_probs.back());
    drafted.tokens.push_back(token.front());
  }
  drafted.draft_probs.emplace_back();
  verify::VerifyInput input;
  input.tree = &drafted;
  input.logits = target;
  input.sampling = &sampling;
  input.accept = &accept;
  input.output = output;
  input.noise = &noise;
  const verify::Verdict verdict = verify::Verifier().Accept(input);
  std::vector<int32_t> tokens;
  for (const tree::NodeId node : verdict.path) tokens.push_back(drafted.tokens[static_cast<size_t>(node)]);
  tokens.push_back(verdict.bonus);
  return tokens;
}

TEST(GoldenRejectionTest, AStepHasTheExactLaw) {
  HYDRANT_NEED_SHARED();
  const std::map<std::string, Values> values = ReadValues(Folder() + "/rejection.safetensors");
  const Matrix target = LogOf(values.at("target_probs")), draft = LogOf(values.at("draft_probs"));
  std::vector<int64_t> lengths(kDepth + 1, 0), first(kVocab, 0), alone(kVocab, 0), with_more(kVocab, 0),
      second(kVocab, 0);
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const std::vector<int32_t> tokens = Step(target, draft, seed);
    ++lengths[tokens.size() - 1];
    ++first[static_cast<size_t>(tokens[0])];
    ++(tokens.size() == 1 ? alone : with_more)[static_cast<size_t>(tokens[0])];
    if (tokens.size() > 1) ++second[static_cast<size_t>(tokens[1])];
  }
  const auto law = [&](const char* name) {
    std::vector<double> probs = Doubles(values.at(name));
    double sum = 0;
    for (const double prob : probs) sum += prob;
    for (double& prob : probs) prob /= sum;  // what is given is joint
    return probs;
  };
  EXPECT_LT(ChiSquareDeviation(lengths, law("num_emitted_probs")), 4);
  EXPECT_LT(ChiSquareDeviation(first, law("first_token")), 4);
  EXPECT_LT(ChiSquareDeviation(alone, law("first_token_when_only_one_emitted")), 4);
  EXPECT_LT(ChiSquareDeviation(with_more, law("first_token_when_more_emitted")), 4);
  EXPECT_LT(ChiSquareDeviation(second, law("second_token_given_more_emitted")), 4);
}

std::vector<GenerationResult> Generate(Engine& engine, const GenerationRequest& request, uint64_t count) {
  std::vector<GenerationRequest> requests(count, request);
  for (uint64_t i = 0; i < count; ++i) requests[i].sampling.seed = i;
  return engine.GenerateBatch(requests);
}

// With the real models, several trees, and many sequences of a batch.
TEST(GoldenRejectionTest, TheEngineDrawsTheFirstTwoTokensByTheModelsOwnLaw) {
  HYDRANT_NEED_SHARED();
  const Values joint = ReadValues(Folder() + "/rejection.safetensors").at("model_joint_first_two");
  EngineOptions options;
  options.model = SharedDir() + "/models/stories260K-hf";
  options.draft = Folder() + "/draft";
  // Every second token is none of the drafts', so that many are drawn again.
  const TempDir dir;
  base::Json even = base::Json::array();
  for (int32_t token = 0; token < kVocab; token += 2) even.push_back(token);
  options.draft_vocab = dir.path() + "/even.json";
  std::ofstream(options.draft_vocab) << base::DumpJson(even);
  Engine engine(options);
  GenerationRequest request;
  request.prompt_ids = Ids(base::ReadJsonFile(Folder() + "/rejection.json").at("prompt_ids"));
  request.sampling.temperature = 1;
  request.accept.rule = AcceptRule::kRejection;
  request.stop = {.max_tokens = 2, .ignore_eos = true, .stop = {}};
  for (const char* tree : {"", "[[0],[1],[2]]"}) {
    request.tree = tree;
    std::vector<int64_t> pairs(static_cast<size_t>(kVocab) * kVocab, 0);
    for (const GenerationResult& result : Generate(engine, request, 6000)) {
      ASSERT_EQ(result.token_ids.size(), 2U);
      ++pairs[static_cast<size_t>(result.token_ids[0] * kVocab + result.token_ids[1])];
    }
    EXPECT_LT(ChiSquareDeviation(pairs, Doubles(joint)), 4) << tree;
  }
}

// The same seed gives the same text, alone and in a batch, and drafts are kept about as often as the case says.
TEST(GoldenRejectionTest, TextsDoNotDependOnTheBatch) {
  HYDRANT_NEED_SHARED();
  EngineOptions options;
  options.model = SharedDir() + "/models/stories260K-hf";
  options.draft = Folder() + "/draft";
  Engine engine(options);
  GenerationRequest request;
  request.prompt_ids = {1, 291, 410, 435, 414, 417};
  request.sampling = {.temperature = 0.9F, .top_p = 0.95F};
  request.accept.rule = AcceptRule::kRejection;
  request.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
  const std::vector<GenerationResult> results = Generate(engine, request, 9);
  size_t steps = 0;
  for (uint64_t i = 0; i < results.size(); ++i) {
    request.sampling.seed = i;
    EXPECT_EQ(engine.Generate(request).token_ids, results[i].token_ids);
    steps += results[i].num_emitted.size();
  }
  EXPECT_LT(steps, 9U * 39 * 2 / 3);
}

}  // namespace
}  // namespace hydrant::test::golden_rejection_test
