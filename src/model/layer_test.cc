// SPDX-License-Identifier: Apache-2.0
#include "model/layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/test_util/test_util.h"
#include "kv/kv_cache.h"
#include "model/linear_packer.h"
#include "model/model_config.h"
#include "model/weight_arranger.h"

namespace hydrant::model::layer_test {
namespace {

using quant::WeightFormat;

struct Shape {
  int64_t hidden, inner, heads, kv_heads, head_dim;
  bool biases_and_norms = false;
};

std::string NameOf(const Shape& s) {
  return std::to_string(s.hidden) + " " + std::to_string(s.inner) + ", " + std::to_string(s.heads) + " heads of " +
         std::to_string(s.head_dim) + " on " + std::to_string(s.kv_heads);
}

ModelConfig ConfigOf(const Shape& shape) {
  ModelConfig config;
  config.hidden_size = shape.hidden;
  config.intermediate_size = shape.inner;
  config.num_layers = 1;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  return config;
}

// Two layers of random weights, and the floats they are made of.
class RandomLayers {
 public:
  RandomLayers(const Shape& shape, WeightFormat format) {
    const int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    for (LayerWeights& layer : layers) {
      layer.input_norm = Floats(shape.hidden);
      layer.post_attention_norm = Floats(shape.hidden);
      Fill(q, shape.hidden, shape.biases_and_norms, layer.q);
      Fill(kv, shape.hidden, shape.biases_and_norms, layer.k);
      Fill(kv, shape.hidden, shape.biases_and_norms, layer.v);
      Fill(shape.hidden, q, shape.biases_and_norms, layer.o);
      Fill(shape.inner, shape.hidden, shape.biases_and_norms, layer.gate);
      Fill(shape.inner, shape.hidden, false, layer.up);
      Fill(shape.hidden, shape.inner, false, layer.down);
      if (!shape.biases_and_norms) continue;
      layer.q_norm = Floats(shape.head_dim);
      layer.k_norm = Floats(shape.head_dim);
    }
    base::ThreadPool pool(1, false);
    LinearPacker packer(&pool, {});
    for (LayerWeights& layer : layers) {
      for (Linear* linear : LinearsOf(layer)) packer.Add(*linear, {.format = format});
    }
    packer.Run();
  }

  std::vector<LayerWeights> layers{2};

 private:
  std::vector<float> Floats(int64_t count) { return kernels::RandomFloats(count, ++seed_, 0.2F); }
  void Fill(int64_t outputs, int64_t inputs, bool bias, Linear& linear) {
    const auto owner = std::make_shared<std::vector<float>>(Floats(outputs * inputs));
    linear.weight = {reinterpret_cast<const uint8_t*>(owner->data()), DType::kF32, {outputs, inputs}, owner};
    if (bias) linear.bias = Floats(outputs);
  }

  uint32_t seed_ = 0;
};

// What comes out of both layers, and their keys and values.
struct Outcome {
  Matrix x;
  std::vector<uint8_t> kv;
};

// A text of 17 rows in passes of so many; in the second layer `outputs` rows of each go all the way.
Outcome RunText(const Shape& shape, const RandomLayers& weights, kernels::Queue queue,
                const std::vector<int32_t>& passes, int32_t outputs = 17) {
  constexpr int32_t kRows = 17;
  std::vector<LayerWeights> layers = weights.layers;
  WeightArranger arranger(queue.table, queue.pool);
  for (LayerWeights& layer : layers) arranger.Arrange(layer);
  const ModelConfig config = ConfigOf(shape);
  LayerRunner runner(&queue, config, layers);
  const kv::LayerShape layer_shape{.num_kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
  kv::BlockPool pool({.layers = {layer_shape, layer_shape}}, 1);
  const int32_t block = pool.Allocate();
  const std::vector<float> inv_freq = InverseFrequencies(config.rope, config.head_dim);
  Outcome outcome{kernels::RandomMatrix(kRows, shape.hidden, 99), {}};
  int32_t first = 0;
  for (const int32_t count : passes) {
    std::vector<kernels::RowKv> batch;
    std::vector<int32_t> positions;
    for (int32_t p = first; p < first + count; ++p) {
      batch.push_back({.blocks = &block, .path = nullptr, .position = p, .identity_length = p + 1, .slot = p});
      positions.push_back(p);
    }
    const kernels::Rows x(outcome.x.row(first), count, shape.hidden, outcome.x.stride());
    for (int64_t l = 0; l < 2; ++l) {
      runner.Reserve(batch, l == 0 ? count : std::min(count, outputs));
      kernels::Region(queue, [&](kernels::Queue& own) {
        runner.Rotate(own, positions, inv_freq);
        runner.Run(own, layers[static_cast<size_t>(l)], pool.layer(l), x);
      });
    }
    first += count;
  }
  for (int64_t l = 0; l < 2; ++l) {
    const kernels::KvLayer layer = pool.layer(l);
    outcome.kv.insert(outcome.kv.end(), layer.data, layer.data + layer.num_bytes());
  }
  return outcome;
}

// Heads in groups and not, more than threads share evenly, narrower than a panel of outputs; widths that leave a part
// of a panel; so many whole heads that tiles take them from products to attention a few at a time; inputs enough for 4
// bits, and for a list of keys and values beside products. One pass of all rows against passes of few.
TEST(LayerTest, BitsDoNotDependOnRowsPerPassOrThreadsOrTarget) {
  const Shape shapes[] = {{64, 136, 4, 4, 16},        {72, 40, 6, 2, 16, true}, {40, 24, 6, 6, 8},  {32, 96, 4, 2, 20},
                          {32, 24, 12, 6, 128, true}, {130, 150, 7, 7, 48},     {832, 72, 6, 3, 64}};
  for (const Shape& shape : shapes) {
    for (const WeightFormat format : {WeightFormat::kStored, WeightFormat::kW8A8, WeightFormat::kW4A16}) {
      const RandomLayers weights(shape, format);
      Outcome expected;
      kernels::ForEveryQueue([&](const kernels::Queue& queue, const std::string& name) {
        if (expected.kv.empty()) expected = RunText(shape, weights, queue, {17});
        for (const std::vector<int32_t>& passes : {std::vector<int32_t>{17}, {1, 1, 5, 10}}) {
          const std::string what = NameOf(shape) + ", " + quant::NameOf(format) + ", " + name + ", " +
                                   std::to_string(passes.size()) + " passes";
          const Outcome found = RunText(shape, weights, queue, passes);
          kernels::ExpectSameBits(found.x, expected.x, what);
          ASSERT_EQ(found.kv, expected.kv) << what;
        }
      });
    }
  }
}

// Gate and up of so many outputs go part by part even for one row.
TEST(LayerTest, WideLayersHaveTheSameBitsRowByRow) {
  const Shape shape{48, 16400, 3, 3, 16};
  const RandomLayers weights(shape, WeightFormat::kW8A8);
  Outcome expected;
  kernels::ForEveryQueue([&](const kernels::Queue& queue, const std::string& name) {
    if (expected.kv.empty()) expected = RunText(shape, weights, queue, {17});
    const Outcome found = RunText(shape, weights, queue, {1, 16});
    EXPECT_EQ(found.kv, expected.kv) << name;
    kernels::ExpectSameBits(found.x, expected.x, name);
  });
}

// The last rows of a pass have the bits that they have among others, all rows leave the same keys and values, and the
// first rows stay as the layer before has made them.
TEST(LayerTest, LastRowsOfAPassMayGoAlone) {
  const Shape shapes[] = {{64, 136, 4, 4, 16}, {72, 40, 6, 2, 16, true}, {32, 96, 4, 1, 20}, {832, 72, 6, 3, 64}};
  for (const Shape& shape : shapes) {
    for (const WeightFormat format : {WeightFormat::kStored, WeightFormat::kW8A8, WeightFormat::kW4A16}) {
      const RandomLayers weights(shape, format);
      kernels::ForEveryQueue([&](const kernels::Queue& queue, const std::string& name) {
        const Outcome expected = RunText(shape, weights, queue, {17});
        const Outcome before = RunText(shape, weights, queue, {17}, 1);
        for (const int32_t outputs : {1, 3, 16}) {
          const std::string what =
              NameOf(shape) + ", " + quant::NameOf(format) + ", " + name + ", " + std::to_string(outputs) + " outputs";
          const Outcome found = RunText(shape, weights, queue, {17}, outputs);
          ASSERT_EQ(found.kv, expected.kv) << what;
          for (int32_t r = 0; r < 17; ++r) {
            const bool whole = r >= 17 - outputs;
            const Matrix& same = whole ? expected.x : before.x;
            kernels::ExpectSameBits(kernels::ConstRows(found.x).Part(r, 1), kernels::ConstRows(same).Part(r, 1), what);
            EXPECT_EQ(found.x.row(r)[0] == expected.x.row(r)[0], whole) << what << ", row " << r;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace hydrant::model::layer_test
