// SPDX-License-Identifier: Apache-2.0
#include "eval/heads.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "eval/random_heads.h"
#include "eval/random_weights.h"
#include "hydrant/error.h"
#include "kernels/kernels.h"

namespace hydrant::eval::heads_test {
namespace {

using quant::WeightFormat;

model::ModelWeights SmallModel(WeightFormat format, const kernels::Queue& queue) {
  model::ModelConfig config = ShapeConfig("tale");
  config.num_layers = 2;
  config.vocab_size = 300;
  model::ModelWeights weights;
  EXPECT_TRUE(MakeRandomModel(config, format, queue, {}, &weights));
  return weights;
}

draft::HeadsFile FileOf(const draft::HeadsInfo& info) {
  draft::HeadsFile file;
  file.info = info;
  return file;
}

tree::Topology Chain(int32_t depth) {
  return tree::Topology::FromPaths(
      std::vector<std::vector<int32_t>>{std::vector<int32_t>(static_cast<size_t>(depth), 0)});
}

// HEADS.md's table is in millions of weights at 7B: Medusa 591, Hydra 994, Hydra++ 1264. ReDrafter has one network for
// all levels: 2 * 4096^2 + 2 * 8192^2 + 32000 * 8192.
TEST(PartWeightsTest, AreThoseOfTheReleasedHeads) {
  const model::ModelConfig config = ShapeConfig("7b");
  const std::pair<const char*, int64_t> kinds[] = {
      {"medusa", 591}, {"hydra", 994}, {"hydra++", 1264}, {"redrafter", 430}};
  for (const auto& [name, millions] : kinds) {
    const std::vector<int64_t> weights = PartWeights(FileOf(PublishedHeadsInfo(name)), config, config.vocab_size);
    ASSERT_EQ(weights.size(), name == std::string("redrafter") ? 2U : 5U) << name;
    EXPECT_EQ((std::accumulate(weights.begin(), weights.end(), int64_t{0}) + 500000) / 1000000, millions) << name;
    EXPECT_EQ(weights[0] > 0, std::string(name) == "hydra++");
  }
}

TEST(HeadsTest, EveryKindIsCheckedAndTimedOnEveryTarget) {
  base::ThreadPool pool(2, false);
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kW4A8}) {
      kernels::Queue queue{&pool, table}, portable{&pool, &kernels::PortableKernels()};
      const model::ModelWeights base = SmallModel(format, queue);
      for (const std::string_view name : PublishedHeadsNames()) {
        if (table != kernels::AvailableKernels().back() && name != "hydra++") continue;
        const draft::HeadsInfo info = PublishedHeadsInfo(name);
        kernels::Queue* const queues[] = {&queue, &portable};
        const auto drafters = MakeRandomHeads(info, base, format, 0, queues, {});
        HeadsOptions options{.queue = &queue, .base = &base};
        options.drafter = drafters[0].get();
        options.portable = drafters[1].get();
        options.part_weights = PartWeights(FileOf(info), base.config, base.config.vocab_size);
        options.tree = Chain(4);
        options.seconds = 0;
        const HeadsResult result = MeasureHeads(options);
        EXPECT_TRUE(result.checked);
        EXPECT_EQ(result.rounds, 3);
        ASSERT_EQ(result.parts.size(), name == "hydra++" ? 6U : 5U) << name;
        EXPECT_EQ(result.parts.back().name, "all");
        EXPECT_EQ(result.parts[0].name, name == "hydra++"     ? "prefix layer"
                                        : name == "redrafter" ? "level 1"
                                                              : "head 1");
        const int times = name == "redrafter" ? 4 : 1;  // read at each level
        EXPECT_NEAR(static_cast<double>(result.parts.back().bytes),
                    static_cast<double>(times * (drafters[0]->weight_bytes() - drafters[0]->table_bytes())), 8);
        EXPECT_GT(result.parts.back().of_step, 0);
      }
    }
  }
}

void WrongMatmul(const kernels::MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  kernels::PortableKernels().matmul(args, output_begin, output_end);
  args.out[output_begin] += 0.25F;
}

TEST(HeadsTest, AWrongAnswerIsTold) {
  base::ThreadPool pool(1, false);
  const model::ModelWeights base = SmallModel(WeightFormat::kBF16, {&pool, &kernels::PortableKernels()});
  kernels::KernelTable wrong = kernels::PortableKernels();
  wrong.matmul = WrongMatmul;
  kernels::Queue queue{&pool, &wrong}, portable{&pool, &kernels::PortableKernels()};
  kernels::Queue* const queues[] = {&queue, &portable};
  const draft::HeadsInfo info = PublishedHeadsInfo("hydra++");
  const auto drafters = MakeRandomHeads(info, base, WeightFormat::kBF16, 0, queues, {});
  HeadsOptions options{.queue = &queue, .base = &base};
  options.drafter = drafters[0].get();
  options.portable = drafters[1].get();
  options.part_weights = PartWeights(FileOf(info), base.config, base.config.vocab_size);
  options.tree = Chain(2);
  options.seconds = 0;
  EXPECT_THROW(MeasureHeads(options), InternalError);
}

}  // namespace
}  // namespace hydrant::eval::heads_test
