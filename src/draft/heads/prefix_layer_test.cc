// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/prefix_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernels/test_util/test_util.h"

namespace hydrant::draft::prefix_layer_test {
namespace {

constexpr int64_t kHidden = 32, kInner = 40, kHeads = 2, kHeadDim = 16;
constexpr int32_t kRows = 40;  // more than a block of positions

model::Linear RandomLinear(int64_t outputs, int64_t inputs, uint32_t seed) {
  const auto owner = std::make_shared<std::vector<float>>(kernels::RandomFloats(outputs * inputs, seed, 0.2F));
  model::Linear linear;
  linear.weight = {reinterpret_cast<const uint8_t*>(owner->data()), DType::kF32, {outputs, inputs}, owner};
  return linear;
}

PrefixWeights RandomPrefix() {
  PrefixWeights prefix;
  prefix.config.hidden_size = kHidden;
  prefix.config.intermediate_size = kInner;
  prefix.config.num_layers = 1;
  prefix.config.num_heads = prefix.config.num_kv_heads = kHeads;
  prefix.config.head_dim = kHeadDim;
  model::LayerWeights& layer = prefix.layer;
  layer.input_norm = kernels::RandomFloats(kHidden, 1);
  layer.post_attention_norm = kernels::RandomFloats(kHidden, 2);
  layer.q = RandomLinear(kHeads * kHeadDim, kHidden, 3);
  layer.k = RandomLinear(kHeads * kHeadDim, kHidden, 4);
  layer.v = RandomLinear(kHeads * kHeadDim, kHidden, 5);
  layer.o = RandomLinear(kHidden, kHeads * kHeadDim, 6);
  layer.gate = RandomLinear(kInner, kHidden, 7);
  layer.up = RandomLinear(kInner, kHidden, 8);
  layer.down = RandomLinear(kHidden, kInner, 9);
  prefix.norm = kernels::RandomFloats(kHidden, 10);
  return prefix;
}

// Keys and values of one prefix layer for some sequences.
struct Sequences {
  Sequences(const PrefixLayer& layer, DType kv_type, int32_t count)
      : pool({.layers = {layer.kv_shape()}, .dtype = kv_type}, count * (kRows / kernels::kBlockPositions + 1)) {
    for (int32_t s = 0; s < count; ++s) EXPECT_TRUE(tables.emplace_back(&pool).Reserve(kRows));
  }
  kv::BlockPool pool;
  std::deque<kv::BlockTable> tables;
};

// The last output after 40 rows in passes of `pass`.
std::vector<float> LastOf(PrefixLayer& layer, DType kv_type, int32_t pass) {
  const Matrix hidden = kernels::RandomMatrix(kRows, kHidden, 11);
  const Sequences one(layer, kv_type, 1);
  std::vector<float> last;
  for (int32_t first = 0; first < kRows; first += pass) {
    const PrefixInput input{.hidden = kernels::ConstRows(hidden).Part(first, std::min(pass, kRows - first)),
                            .first_position = first,
                            .blocks = one.tables.front().blocks(),
                            .last = &last};
    layer.Run(std::span(&input, 1), one.pool.layer(0));
  }
  return last;
}

// Largest difference of two outputs over the largest value.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(double{a[i]} - double{b[i]}));
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return difference / largest;
}

TEST(PrefixLayerTest, BitsDoNotDependOnRowsPerPassOrThreadsOrTarget) {
  for (const DType kv_type : {DType::kF32, DType::kF16}) {
    std::vector<float> expected;
    kernels::ForEveryQueue([&](kernels::Queue queue, const std::string& name) {
      PrefixLayer layer(RandomPrefix(), &queue);
      if (expected.empty()) expected = LastOf(layer, kv_type, kRows);
      for (const int32_t pass : {kRows, 1, 3}) EXPECT_EQ(LastOf(layer, kv_type, pass), expected) << name << ' ' << pass;
    });
  }
}

// bf16 has 8 bits of mantissa, f16 11: outputs move by about as much, and by something.
TEST(PrefixLayerTest, KeepsKeysAndValuesInTheTypeItIsTold) {
  base::ThreadPool pool(1, false);
  kernels::Queue queue{&pool, &kernels::PortableKernels()};
  PrefixLayer layer(RandomPrefix(), &queue);
  const std::vector<float> exact = LastOf(layer, DType::kF32, kRows);
  const double bf16 = Difference(LastOf(layer, DType::kBF16, kRows), exact);
  const double f16 = Difference(LastOf(layer, DType::kF16, kRows), exact);
  EXPECT_GT(bf16, 1e-5);
  EXPECT_LT(bf16, 2e-2);
  EXPECT_GT(f16, 1e-7);
  EXPECT_LT(f16, bf16);
}

// Each sequence's output is what it gives alone, whatever shares the pass: here a prompt's chunk beside single rows.
TEST(PrefixLayerTest, SequencesShareAPass) {
  base::ThreadPool pool(2, false);
  kernels::Queue queue{&pool, &kernels::KernelsFor("auto")};
  PrefixLayer layer(RandomPrefix(), &queue);
  constexpr int32_t kCounts[] = {1, kRows, 5};
  std::vector<std::vector<float>> alone(3), together(3);
  std::vector<Matrix> hidden;
  for (uint32_t s = 0; s < 3; ++s) hidden.push_back(kernels::RandomMatrix(kRows, kHidden, 20 + s));
  const Sequences each(layer, DType::kF32, 3), all(layer, DType::kF32, 3);
  const auto input_for = [&](size_t s, int32_t first, int32_t count, const Sequences& sequences,
                             std::vector<std::vector<float>>& last) {
    return PrefixInput{.hidden = kernels::ConstRows(hidden[s]).Part(first, count),
                       .first_position = first,
                       .blocks = sequences.tables[s].blocks(),
                       .last = &last[s]};
  };
  for (size_t s = 0; s < 3; ++s) {
    for (int32_t first = 0; first < kRows; first += kCounts[s]) {
      const PrefixInput input = input_for(s, first, std::min(kCounts[s], kRows - first), each, alone);
      layer.Run(std::span(&input, 1), each.pool.layer(0));
    }
  }
  for (int32_t first = 0; first < kRows; ++first) {
    std::vector<PrefixInput> inputs;
    for (size_t s = 0; s < 3; ++s) {
      if (first % kCounts[s] == 0)
        inputs.push_back(input_for(s, first, std::min(kCounts[s], kRows - first), all, together));
    }
    layer.Run(inputs, all.pool.layer(0));
  }
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace hydrant::draft::prefix_layer_test
