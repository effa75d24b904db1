// SPDX-License-Identifier: Apache-2.0
#include "draft/prefix_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/test_util.h"

namespace hydrant::draft {
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

// The last output after 40 rows in passes of `pass`.
std::vector<float> LastOf(PrefixLayer& layer, DType kv_type, int32_t pass) {
  const Matrix hidden = kernels::RandomMatrix(kRows, kHidden, 11);
  const std::unique_ptr<PrefixCache> cache = layer.NewCache(kRows, kv_type);
  EXPECT_EQ(cache->pool.shape().dtype, kv_type);
  std::vector<float> last;
  for (int32_t first = 0; first < kRows; first += pass) {
    layer.Run(*cache, {hidden.row(first), std::min(pass, kRows - first), kHidden, hidden.stride()}, last);
  }
  EXPECT_EQ(cache->table.length(), kRows);
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

}  // namespace
}  // namespace hydrant::draft
