// SPDX-License-Identifier: Apache-2.0
#include "sampling/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "base/json.h"
#include "tests/test_data.h"

namespace hydrant::sampling::choose_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(std::mt19937& random, size_t size, float spread = 2.0F) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// softmax in double with the C library; -infinity has probability 0.
std::vector<double> Softmax(std::span<const float> row) {
  const float max = *std::ranges::max_element(row);
  std::vector<double> probs;
  for (const float value : row) probs.push_back(std::exp(static_cast<double>(value) - max));
  const double sum = std::accumulate(probs.begin(), probs.end(), 0.0);
  for (double& prob : probs) prob /= sum;
  return probs;
}

TEST(ArgmaxTest, LowestIndexAmongEquals) {
  EXPECT_EQ(Argmax({}), 0);
  EXPECT_EQ(Argmax(std::vector<float>{1, 3, 3}), 1);
  EXPECT_EQ(Argmax(std::vector<float>{-0.0F, 0.0F}), 0);
  EXPECT_EQ(Argmax(std::vector<float>{kNan, -kInf, -5, kNan}), 2);
  EXPECT_EQ(Argmax(std::vector<float>{kNan, kNan}), 0);
  EXPECT_EQ(Argmax(std::vector<float>{-kInf, -kInf}), 0);
  EXPECT_EQ(Argmax(std::vector<float>{1, kInf, kInf}), 1);
}

TEST(ArgmaxTest, LowestIndexAmongEqualsInLongRows) {
  for (const size_t size : {size_t{511}, size_t{512}, size_t{513}, size_t{1100}, size_t{4096}}) {
    for (const size_t first : {size_t{0}, size_t{31}, size / 2, size - 1}) {
      std::vector<float> values(size, -3.0F);
      values[size / 3] = kNan;
      for (size_t t = first; t < size; t += 200) values[t] = 2.0F;
      EXPECT_EQ(Argmax(values), static_cast<int32_t>(first)) << size;
    }
  }
}

// Few distinct values, so that ties are everywhere; NaN and infinities among them.
std::vector<float> Awkward(std::mt19937& random, size_t size) {
  std::vector<float> values(size);
  for (float& value : values) {
    const auto kind = random() % 12;
    value = kind == 0 ? kNan : kind == 1 ? -kInf : static_cast<float>(random() % 20);
  }
  return values;
}

TEST(TopKTest, EqualsSorting) {
  std::mt19937 random(3);
  for (const size_t size : {1U, 2U, 15U, 16U, 17U, 33U, 100U, 1000U}) {
    for (const int32_t k : {0, 1, 2, 3, 10, 16, 64, 65, 200, 5000}) {
      const std::vector<float> values = Awkward(random, size);
      std::vector<int32_t> expected(size);
      std::iota(expected.begin(), expected.end(), 0);
      const auto key = [&](int32_t t) {
        const float value = values[static_cast<size_t>(t)];
        return std::isnan(value) ? -kInf : value;
      };
      std::ranges::stable_sort(expected, [&](int32_t a, int32_t b) { return key(a) > key(b); });
      expected.resize(std::min(size, static_cast<size_t>(k)));
      std::vector<int32_t> got = {42};
      TopK(values, k, got);
      ASSERT_EQ(got, expected) << size << " " << k;
      if (k == 1) {
        EXPECT_EQ(Argmax(values), got[0]);
      }
    }
  }
}

SamplingOptions OptionsOf(const base::Json& settings) {
  SamplingOptions options;
  options.temperature = settings.value("temperature", 1.0F);
  options.top_k = settings.value("top_k", 0);
  options.top_p = settings.value("top_p", 1.0F);
  options.min_p = settings.value("min_p", 0.0F);
  options.repetition_penalty = settings.value("repetition_penalty", 1.0F);
  options.presence_penalty = settings.value("presence_penalty", 0.0F);
  options.frequency_penalty = settings.value("frequency_penalty", 0.0F);
  return options;
}

// survivors and probabilities of one case; `split` output tokens travel as the path, as those of a drafted node do.
void ExpectCase(const base::Json& vector, const base::Json& expected, size_t split) {
  const auto logits = vector.at("logits").get<std::vector<float>>();
  const auto prompt = vector.at("prompt").get<std::vector<int32_t>>();
  const auto output = vector.at("output").get<std::vector<int32_t>>();
  const std::span<const int32_t> all(output);
  std::vector<float> processed(logits.size());
  ProcessLogits(logits, OptionsOf(expected.at("settings")),
                {prompt, all.subspan(0, all.size() - split), all.subspan(all.size() - split)}, processed);
  std::vector<int32_t> survivors;
  std::vector<double> probs;
  const std::vector<double> softmax = Softmax(processed);
  for (size_t t = 0; t < processed.size(); ++t) {
    if (processed[t] == -kInf) continue;
    survivors.push_back(static_cast<int32_t>(t));
    probs.push_back(softmax[t]);
  }
  auto expected_probs = expected.at("probs").get<std::vector<double>>();
  if (expected.at("tie_across_boundary").get<bool>()) {  // which of the equals stay depends on the sort
    std::ranges::sort(probs);
    std::ranges::sort(expected_probs);
  } else {
    ASSERT_EQ(survivors, expected.at("survivors").get<std::vector<int32_t>>());
  }
  ASSERT_EQ(probs.size(), expected_probs.size());
  for (size_t i = 0; i < probs.size(); ++i) ASSERT_NEAR(probs[i], expected_probs[i], 1e-6);
}

void ExpectAllCases(const std::string& file, size_t at_least) {
  const base::Json json = base::ReadJsonFile(file);
  std::map<std::string, const base::Json*> vectors;
  for (const base::Json& vector : json.at("vectors")) vectors[vector.at("id")] = &vector;
  size_t compared = 0;
  for (const base::Json& expected : json.at("cases")) {
    if (expected.at("threshold_sensitive").get<bool>()) continue;
    SCOPED_TRACE(expected.at("vector").dump() + " " + expected.at("settings").dump());
    ExpectCase(*vectors.at(expected.at("vector")), expected, compared % 4);
    ++compared;
  }
  EXPECT_GE(compared, at_least);
}

TEST(ProcessLogitsTest, EqualsTheCommittedReferenceCases) {
  ExpectAllCases(test::SourceDir() + "/tests/golden/sampling.json", 80);
}

TEST(ProcessLogitsTest, EqualsTheReferenceCases) {
  HYDRANT_NEED_SHARED();
  ExpectAllCases(test::SharedDir() + "/golden/sampling.json", 280);
}

// The slow twin of top-p: sort everything.
std::vector<bool> NaiveNucleus(std::span<const float> scaled, double top_p) {
  const std::vector<double> probs = Softmax(scaled);
  std::vector<size_t> order(probs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scaled[a] > scaled[b]; });
  std::vector<bool> kept(probs.size(), false);
  double sum = 0;
  for (const size_t t : order) {
    kept[t] = true;
    sum += probs[t];
    if (sum >= top_p) break;
  }
  return kept;
}

TEST(ProcessLogitsTest, TopPEqualsSortingEverything) {
  std::mt19937 random(5);
  for (const size_t size : {1U, 2U, 63U, 64U, 65U, 1000U, 5000U}) {
    for (const float spread : {0.0F, 0.01F, 1.0F, 8.0F}) {
      for (const float top_p : {1e-6F, 0.3F, 0.9F, 0.999F}) {
        std::vector<float> logits = RandomLogits(random, size, spread == 0 ? 1.0F : spread);
        if (spread == 0) std::ranges::fill(logits, 1.5F);
        std::vector<float> all(size), kept(size);
        ProcessLogits(logits, {.temperature = 1}, {}, all);
        ProcessLogits(logits, {.temperature = 1, .top_p = top_p}, {}, kept);
        const std::vector<bool> expected = NaiveNucleus(all, top_p);
        size_t differ = 0;
        for (size_t t = 0; t < size; ++t) differ += (kept[t] != -kInf) != expected[t] ? 1 : 0;
        EXPECT_LE(differ, 1U) << size << " " << spread << " " << top_p;  // one at the border, by rounding of the sums
      }
    }
  }
}

TEST(ProcessLogitsTest, NotANumberAndInfinity) {
  std::vector<float> out(4);
  const SamplingOptions sampled = {.temperature = 0.7F, .top_k = 3, .top_p = 0.9F, .min_p = 0.01F};
  ProcessLogits(std::vector<float>{kNan, 1, kInf, kInf}, sampled, {}, out);
  EXPECT_EQ(out, (std::vector<float>{-kInf, -kInf, 0, 0}));
  ProcessLogits(std::vector<float>{kNan, -kInf, kNan, -kInf}, sampled, {}, out);
  EXPECT_EQ(out, std::vector<float>(4, -kInf));
  ProcessLogits(std::vector<float>{kNan, 2, -kInf, 2}, {.temperature = 1e-30F, .min_p = 1.0F}, {}, out);
  EXPECT_EQ(out, (std::vector<float>{-kInf, 0, -kInf, 0}));
}

TEST(ProcessLogitsTest, MinPOfOneKeepsAPenalisedMaximum) {
  std::vector<float> out(3);
  const std::vector<int32_t> history = {0};
  ProcessLogits(std::vector<float>{10.1F, 1, 1}, {.temperature = 0.3F, .min_p = 1, .repetition_penalty = 1.3F},
                {history, {}, {}}, out);
  EXPECT_EQ(out, (std::vector<float>{0, -kInf, -kInf}));
}

TEST(ChooseTokenTest, GreedyTakesThePenalisedArgmax) {
  NoiseCache noise(&kernels::PortableKernels(), 1, 3);
  std::vector<float> scratch;
  const std::vector<float> logits = {2, 3, 2.9F};
  const std::vector<int32_t> output = {1, 7};  // an id outside the vocabulary is no one's penalty
  EXPECT_EQ(ChooseToken(logits, {}, {{}, output, {}}, noise, 0, scratch), 1);
  EXPECT_EQ(ChooseToken(logits, {.presence_penalty = 0.5F}, {{}, output, {}}, noise, 0, scratch), 2);
  EXPECT_EQ(ChooseToken(logits, {.presence_penalty = 0.5F}, {output, {}, {}}, noise, 0, scratch), 1);
  EXPECT_EQ(ChooseToken(logits, {.repetition_penalty = 1.1F}, {output, {}, {}}, noise, 0, scratch), 2);
  const std::vector<int32_t> path = {1, 2, 2};
  EXPECT_EQ(ChooseToken(logits, {.frequency_penalty = 0.6F}, {{}, {}, path}, noise, 0, scratch), 1);
  EXPECT_EQ(ChooseToken(logits, {.frequency_penalty = 1.1F}, {{}, {}, path}, noise, 0, scratch), 0);
}

// Observed counts against expected ones; cells that are impossible must stay empty.
double ChiSquare(std::span<const double> observed, std::span<const double> probs, double draws) {
  double chi = 0;
  for (size_t t = 0; t < observed.size(); ++t) {
    const double expected = probs[t] * draws;
    if (expected == 0) {
      EXPECT_EQ(observed[t], 0) << "token " << t << " was dropped and drawn";
      continue;
    }
    chi += (observed[t] - expected) * (observed[t] - expected) / expected;
  }
  return chi;
}

TEST(ChooseTokenTest, DrawsTheProcessedDistribution) {
  const std::vector<float> logits = {1.0F, 0.2F, -0.3F, 2.0F, 0.0F, 1.4F, -1.0F, 0.9F, 0.3F, -0.6F};
  const std::vector<int32_t> output = {3, 3, 5};
  const SamplingOptions settings[] = {
      {.temperature = 1.0F},
      {.temperature = 0.6F, .top_k = 6},
      {.temperature = 1.5F, .top_p = 0.8F, .min_p = 0.1F},
      {.temperature = 0.9F, .repetition_penalty = 1.3F, .presence_penalty = 0.2F, .frequency_penalty = 0.3F},
  };
  constexpr uint64_t kSeeds = 30000;
  for (SamplingOptions options : settings) {
    std::vector<float> processed(logits.size()), scratch;
    ProcessLogits(logits, options, {{}, output, {}}, processed);
    std::vector<double> observed(logits.size(), 0);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      NoiseCache noise(&kernels::PortableKernels(), seed * 0x9e3779b97f4a7c15U, static_cast<int32_t>(logits.size()));
      const int64_t position = static_cast<int64_t>(seed % 50);
      ++observed[static_cast<size_t>(ChooseToken(logits, options, {{}, output, {}}, noise, position, scratch))];
    }
    // At most 9 degrees of freedom: 33.7 is exceeded once in 10^4.
    EXPECT_LT(ChiSquare(observed, Softmax(processed), static_cast<double>(kSeeds)), 33.7);
  }
}

TEST(RankCandidatesTest, FirstIsTheVerifiersOwnChoice) {
  std::mt19937 random(9);
  NoiseCache noise(&kernels::PortableKernels(), 17, 300);
  std::vector<float> scratch;
  std::vector<int32_t> ranked;
  const std::vector<int32_t> history = {4, 4, 250};
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.repetition_penalty = 1.5F}, SamplingOptions{.temperature = 1},
        SamplingOptions{.temperature = 0.8F, .top_k = 3, .top_p = 0.9F},
        SamplingOptions{.temperature = 0.7F, .min_p = 0.2F, .presence_penalty = 1}}) {
    for (int64_t position = 0; position < 50; ++position) {
      const std::vector<float> logits = RandomLogits(random, 300);
      RankCandidates(logits, options, true, {history, history, {}}, noise, position, 10, scratch, ranked);
      ASSERT_EQ(ranked.size(), 10U);
      EXPECT_EQ(ranked[0], ChooseToken(logits, options, {history, history, {}}, noise, position, scratch));
      std::ranges::sort(ranked);
      EXPECT_TRUE(std::ranges::adjacent_find(ranked) == ranked.end());
    }
  }
}

// A logit over such a temperature is infinite.
TEST(RankCandidatesTest, ATinyTemperatureRanksAsNone) {
  const std::vector<float> logits = {3, 9, 5, 7};
  NoiseCache noise(&kernels::PortableKernels(), 1, 4);
  SamplingOptions options;
  std::vector<float> scratch;
  std::vector<int32_t> greedy, found;
  options.temperature = 0;
  RankCandidates(logits, options, true, {}, noise, 3, 3, scratch, greedy);
  options.temperature = 1e-38F;
  RankCandidates(logits, options, true, {}, noise, 3, 3, scratch, found);
  EXPECT_EQ(greedy, (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(found, greedy);
}

TEST(RankCandidatesTest, ProbabilitiesAreASoftmaxOfWhatRanks) {
  std::mt19937 random(10);
  NoiseCache noise(&kernels::PortableKernels(), 18, 300);
  std::vector<float> scratch, probabilities;
  std::vector<int32_t> ranked;
  std::vector<float> logits = RandomLogits(random, 300);
  logits[7] = kNan;
  logits[9] = -kInf;
  for (const float temperature : {0.0F, 0.7F}) {
    const SamplingOptions options{.temperature = temperature};
    RankCandidates(logits, options, true, {}, noise, 4, 300, scratch, ranked, &probabilities);
    std::vector<float> scores = logits;
    for (size_t t = 0; temperature > 0 && t < 300; ++t) scores[t] = logits[t] / temperature + noise.Row(4)[t];
    for (float& score : scores) score = score == score ? score : -kInf;
    const std::vector<double> expected = Softmax(scores);
    ASSERT_EQ(probabilities.size(), 300U);
    for (size_t i = 0; i < 300; ++i) {
      const double exact = expected[static_cast<size_t>(ranked[i])];
      EXPECT_NEAR(static_cast<double>(probabilities[i]), exact, 1e-6 * exact) << i;
    }
  }
  // What a filter drops has none.
  RankCandidates(logits, {.temperature = 1, .top_k = 2}, true, {}, noise, 4, 5, scratch, ranked, &probabilities);
  ASSERT_EQ(probabilities.size(), 5U);
  EXPECT_NEAR(static_cast<double>(probabilities[0] + probabilities[1]), 1, 1e-6);
  EXPECT_GE(probabilities[0], probabilities[1]);
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(probabilities[i], 0);
}

TEST(RankCandidatesTest, KeptTokensFirstThenTheRest) {
  const std::vector<float> logits = {1, 5, 4, 0, kNan, 3};
  NoiseCache noise(&kernels::PortableKernels(), 21, 6);
  std::vector<float> scratch;
  std::vector<int32_t> ranked;
  RankCandidates(logits, {.temperature = 1, .top_k = 2}, true, {}, noise, 3, 100, scratch, ranked);
  const std::span<const float> g = noise.Row(3);
  std::vector<int32_t> kept = {1, 2}, rest = {0, 3, 5};
  const auto score = [&](int32_t t) { return logits[static_cast<size_t>(t)] + g[static_cast<size_t>(t)]; };
  std::ranges::sort(kept, std::greater<>(), score);
  std::ranges::sort(rest, std::greater<>(), score);
  std::vector<int32_t> expected = kept;
  expected.insert(expected.end(), rest.begin(), rest.end());
  expected.push_back(4);  // NaN comes last
  EXPECT_EQ(ranked, expected);
}

TEST(RankCandidatesTest, PlainIgnoresNoise) {
  const std::vector<float> logits = {1, 5, 4, 0, 4, 3};
  NoiseCache noise(&kernels::PortableKernels(), 21, 6);
  std::vector<float> scratch;
  std::vector<int32_t> ranked;
  RankCandidates(logits, {.temperature = 3}, false, {}, noise, 3, 4, scratch, ranked);
  EXPECT_EQ(ranked, (std::vector<int32_t>{1, 2, 4, 5}));
  RankCandidates(logits, {}, true, {}, noise, 3, 4, scratch, ranked);
  EXPECT_EQ(ranked, (std::vector<int32_t>{1, 2, 4, 5}));
}

TEST(NoiseCacheTest, RowsDependOnSeedAndPositionOnly) {
  constexpr int32_t kVocab = 37;
  NoiseCache cache(&kernels::PortableKernels(), 5, kVocab);
  const auto expected = [&](int64_t position) {
    std::vector<float> row(kVocab);
    kernels::PortableKernels().gumbel_row(5, 0, static_cast<uint32_t>(position), kVocab, row.data());
    return row;
  };
  const auto matches = [&](int64_t position) { return std::ranges::equal(cache.Row(position), expected(position)); };
  const std::span<const float> first = cache.Row(0);
  for (int64_t position = 1; position < NoiseCache::kKeep; ++position) EXPECT_TRUE(matches(position));
  EXPECT_TRUE(std::ranges::equal(first, expected(0)));  // still valid
  for (int64_t position = 500; position > 0; position -= 7) EXPECT_TRUE(matches(position));
  cache.Forget(400);
  for (int64_t position = 390; position < 510; ++position) EXPECT_TRUE(matches(position));
  EXPECT_TRUE(matches(0));
}

}  // namespace
}  // namespace hydrant::sampling::choose_test
