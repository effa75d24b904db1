// SPDX-License-Identifier: Apache-2.0
#include "eval/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "eval/random_weights.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"
#include "quant/pack.h"

namespace hydrant::eval::step_test {
namespace {

using quant::WeightFormat;

constexpr WeightFormat kFormats[] = {WeightFormat::kF32,  WeightFormat::kBF16,  WeightFormat::kW8A8,
                                     WeightFormat::kW4A8, WeightFormat::kW8A16, WeightFormat::kW4A16};

model::ModelConfig SmallConfig() {
  model::ModelConfig config = ShapeConfig("tale");
  config.num_layers = 2;
  config.vocab_size = 300;
  return config;
}

model::ModelWeights SmallModel(WeightFormat format, base::ThreadPool& pool,
                               const kernels::KernelTable& table = kernels::PortableKernels()) {
  model::ModelWeights weights;
  EXPECT_TRUE(MakeRandomModel(SmallConfig(), format, {&pool, &table}, {}, &weights));
  return weights;
}

TEST(RandomWeightsTest, ShapesAreTheModels) {
  base::ThreadPool pool(1, false);
  const model::ModelConfig config = ShapeConfig("tale");
  model::ModelWeights weights;
  ASSERT_TRUE(MakeRandomModel(config, WeightFormat::kBF16, {&pool, &kernels::PortableKernels()}, {}, &weights));
  EXPECT_EQ(MacsPerRow(weights), 16 * (4 * 256 * 256 + 3 * 256 * 704) + 4096 * 256);
  EXPECT_EQ(BytesRead(weights), 2 * MacsPerRow(weights));
  EXPECT_EQ(ShapeConfig("7b").num_layers, 32);
}

TEST(RandomWeightsTest, BitsDoNotDependOnThreads) {
  base::ThreadPool one(1, false), three(3, false);
  for (const WeightFormat format : {WeightFormat::kW4A8, WeightFormat::kBF16}) {
    const model::ModelWeights a = SmallModel(format, one), b = SmallModel(format, three);
    const auto bytes_of = [](const model::Linear& linear) {
      return linear.packed ? linear.packed->matrix.panels : linear.weight.data;
    };
    const size_t bytes = format == WeightFormat::kBF16
                             ? a.layers[1].down.weight.num_bytes()
                             : static_cast<size_t>(a.layers[1].down.packed->matrix.panel_bytes() *
                                                   a.layers[1].down.packed->matrix.num_panels());
    EXPECT_EQ(std::memcmp(bytes_of(a.layers[1].down), bytes_of(b.layers[1].down), bytes), 0);
    EXPECT_NE(std::memcmp(bytes_of(a.layers[0].down), bytes_of(a.layers[1].down), bytes), 0);
  }
}

// Codes that no format has (weight -128) and floats that are no numbers would slow some kernels down or spoil the
// check.
TEST(RandomWeightsTest, ValuesAreThoseOfTheFormatAndOfMediumSize) {
  base::ThreadPool pool(2, false);
  for (const WeightFormat format : kFormats) {
    const model::ModelWeights weights = SmallModel(format, pool);
    const model::Linear& gate = weights.layers[0].gate;
    std::vector<float> values = gate.packed ? quant::Unpack(gate.packed->matrix) : ToFloats(gate.weight);
    ASSERT_EQ(values.size(), 704U * 256U);
    const float most = gate.packed ? 127.01F / (64 * 16) : 0.125F;
    double sum = 0, squares = 0;
    for (const float value : values) {
      ASSERT_LE(std::fabs(value), most) << quant::NameOf(format);
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_NEAR(sum / count, 0, 1e-2) << quant::NameOf(format);
    EXPECT_GT(256 * squares / count, 0.1) << quant::NameOf(format);  // a row of ones gives outputs of size 1
    EXPECT_LT(256 * squares / count, 3) << quant::NameOf(format);
  }
}

TEST(RandomWeightsTest, MoreThanMemoryIsRefused) {
  base::ThreadPool pool(1, false);
  RandomWeights random(1);
  model::Linear linear;
  random.Add(int64_t{1} << 25, int64_t{1} << 25, WeightFormat::kF32, &linear);
  EXPECT_THROW(random.Build({&pool, &kernels::PortableKernels()}), UserError);
}

TEST(StepTest, EveryTargetIsCheckedAndTimed) {
  base::ThreadPool pool(2, false);
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kW4A8, WeightFormat::kW8A16}) {
      const model::ModelWeights weights = SmallModel(format, pool, *table);
      kernels::Queue queue{&pool, table};
      StepOptions options{.queue = &queue, .weights = &weights, .format = format, .rows = {1, 3, 8}, .context = 5};
      options.seconds = 0;
      int notes = 0;
      options.on_progress = [&notes](double, const std::string&) { return ++notes < 3; };
      const StepResult result = MeasureStep(options);
      EXPECT_TRUE(result.checked);
      EXPECT_EQ(result.rounds, 2);  // the first note says that it checks
      EXPECT_EQ(result.macs_per_row, MacsPerRow(weights));
      ASSERT_EQ(result.rows.size(), 3U);
      EXPECT_EQ(result.rows[0].ratio, 1);
      EXPECT_EQ(result.rows[2].rows, 8);
      EXPECT_GE(result.rows[2].passes, 2);
      EXPECT_GT(result.rows[2].share.median, 0);
    }
  }
}

TEST(StepTest, APromptReadsTheWeightsOncePerChunk) {
  base::ThreadPool pool(1, false);
  const model::ModelWeights weights = SmallModel(WeightFormat::kBF16, pool);
  kernels::Queue queue{&pool, kernels::AvailableKernels().back()};
  StepOptions options{.queue = &queue, .weights = &weights, .format = WeightFormat::kBF16, .prefill = 20};
  options.prefill_chunk = 8;
  options.seconds = 0;
  const StepResult result = MeasureStep(options);
  EXPECT_FALSE(result.checked);
  EXPECT_EQ(result.rounds, 3);
  EXPECT_TRUE(result.rows.empty());
  EXPECT_EQ(result.prefill.rows, 20);
  EXPECT_GT(result.prefill.ms.min, 0);
}

void WrongMatmul(const kernels::MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  kernels::PortableKernels().matmul(args, output_begin, output_end);
  if (args.rows > 5) args.out[5 * args.out_stride + output_begin] += 1.0F;
}

TEST(StepTest, AWrongAnswerIsTold) {
  base::ThreadPool pool(1, false);
  const model::ModelWeights weights = SmallModel(WeightFormat::kBF16, pool);
  kernels::KernelTable wrong = kernels::PortableKernels();
  wrong.name = "wrong";
  wrong.matmul = WrongMatmul;
  kernels::Queue queue{&pool, &wrong};
  StepOptions options{.queue = &queue, .weights = &weights, .format = WeightFormat::kBF16, .rows = {1, 10}};
  options.seconds = 0;
  EXPECT_THROW(MeasureStep(options), InternalError);  // row 5 is node 4, on the path to node 9
}

}  // namespace
}  // namespace hydrant::eval::step_test
