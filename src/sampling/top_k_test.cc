// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/top_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/test_util/packed.h"
#include "kernels/test_util/test_util.h"
#include "sampling/choose.h"

namespace hydrant::kernels::top_k_test {
namespace {

Weight WeightOf(const std::vector<float>& values, int64_t outputs, int64_t inputs) {
  Weight weight;
  weight.data = reinterpret_cast<const uint8_t*>(values.data());
  weight.outputs = outputs;
  weight.inputs = weight.row_stride = inputs;
  return weight;
}

struct Ranked {
  std::vector<int32_t> tokens;
  std::vector<double> probabilities;
};

// Logits written out in full, then ranked: the slow twin.
Ranked Expected(std::span<const float> logits, std::span<const int32_t> map, const TopKRule& rule) {
  std::vector<float> scores;
  for (size_t o = 0; o < logits.size(); ++o) {
    const size_t token = map.empty() ? o : static_cast<size_t>(map[o]);
    scores.push_back(rule.noise == nullptr ? logits[o] : logits[o] / rule.temperature + rule.noise[token]);
  }
  Ranked best;
  sampling::TopK(scores, rule.k, best.tokens);
  double sum = 0;
  for (const float score : scores) sum += std::exp(static_cast<double>(score));
  for (int32_t& token : best.tokens) {
    if (rule.probabilities) {
      best.probabilities.push_back(std::exp(static_cast<double>(scores[static_cast<size_t>(token)])) / sum);
    }
    if (!map.empty()) token = map[static_cast<size_t>(token)];
  }
  return best;
}

std::vector<TopKRule> Rules(int64_t rows, const std::vector<float>& noise) {
  std::vector<TopKRule> rules;
  for (int64_t r = 0; r < rows; ++r) {
    rules.push_back({.k = static_cast<int32_t>(r % 11)});
    if (r % 2 == 1) rules.back() = {.k = 7, .temperature = 0.7F, .noise = noise.data()};
    rules.back().probabilities = r % 3 != 2;
  }
  return rules;
}

// On every target that reads the weight.
void CheckWeight(const Weight& weight, int64_t rows, bool mapped) {
  const int64_t outputs = weight.outputs;
  const Matrix x = RandomMatrix(rows, weight.inputs, 2);
  const std::vector<float> bias(static_cast<size_t>(outputs), 0.25F), noise = RandomFloats(3 * outputs, 3);
  std::vector<int32_t> map;
  for (int32_t o = 0; mapped && o < outputs; ++o) map.push_back(3 * o + 1);
  const std::vector<TopKRule> rules = Rules(rows, noise);
  TopKOutput output;  // with the rows of the call before
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    if (weight.kind != InputKind::kF32 && !queue.table->Reads(weight.packed.type)) return;
    Matrix logits(rows, outputs);
    Matmul(queue, x, weight, bias, logits);
    MatmulInput input;
    input.Reserve(*queue.table, weight.kind, rows, weight.inputs);
    output.Reserve(queue.pool->num_threads(), rules, outputs);
    Region(queue, [&](Queue& own) {
      input.Load(own, x);
      MatmulTopK(own, input, {&weight, bias, {}}, map, rules, output);
    });
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<const int32_t> found = output.Row(r);
      const std::span<const float> probabilities = output.probabilities();
      SCOPED_TRACE(name + " R=" + std::to_string(rows) + " V=" + std::to_string(outputs) + " row " + std::to_string(r));
      const Ranked expected = Expected(std::as_const(logits).row_span(r), map, rules[static_cast<size_t>(r)]);
      EXPECT_EQ(std::vector<int32_t>(found.begin(), found.end()), expected.tokens);
      ASSERT_EQ(probabilities.size(), expected.probabilities.size());
      for (size_t i = 0; i < probabilities.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(probabilities[i]), expected.probabilities[i], 1e-5 * expected.probabilities[i]);
      }
    }
  });
}

TEST(TopKTest, EqualsRankingTheWholeRow) {
  constexpr int64_t kInputs = 24;
  for (const int64_t outputs : {1, 5, 16, 17, 100, 511, 512, 513, 1500}) {
    std::vector<float> values = RandomFloats(outputs * kInputs, 1);
    // Every third output repeats the one before it: ties.
    for (int64_t o = 2; o < outputs; o += 3) {
      std::copy_n(values.data() + (o - 1) * kInputs, kInputs, values.data() + o * kInputs);
    }
    for (const int64_t rows : {1, 2, 9, 70}) {
      for (const bool mapped : {false, true}) CheckWeight(WeightOf(values, outputs, kInputs), rows, mapped);
    }
  }
}

// Packed weights end where no page may be read.
TEST(TopKTest, EqualsRankingTheWholeRowOfPackedWeights) {
  for (const PackedType type : {PackedType::kW8, PackedType::kW4, PackedType::kQuads, PackedType::kOctets}) {
    for (const int64_t outputs : {5, 17, 100, 500, 1030}) {
      const TestPackedMatrix packed(type, outputs, 300, 1);
      for (const int64_t rows : {1, 9}) CheckWeight(Weight::Of(packed.matrix()), rows, outputs == 100);
    }
  }
}

TEST(TopKTest, NanNeverWinsAndTiesKeepTheLowerToken) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  BestTokens best;
  best.Start(4);
  const float scores[] = {nan, -infinity, 1, 2, 2, nan, 2, -infinity};
  best.Offer(scores, 100, 8);
  std::vector<int32_t> tokens;
  for (const ScoredToken& token : best.tokens()) tokens.push_back(token.token);
  EXPECT_EQ(tokens, (std::vector<int32_t>{103, 104, 106, 102}));
  best.Start(3);
  const float never[] = {nan, -infinity, nan};
  best.Offer(never, 0, 3);
  EXPECT_EQ(best.tokens().size(), 3U);
  EXPECT_EQ(best.tokens()[0].token, 0);
}

}  // namespace
}  // namespace hydrant::kernels::top_k_test
