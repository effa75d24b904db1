// SPDX-License-Identifier: Apache-2.0
#include "eval/heads.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <tuple>
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

// HEADS.md's table is in millions of weights at 7B: Medusa 591, Hydra 994, Hydra++ 1264. One network for all levels:
// ReDrafter 2 * 4096^2 + 2 * 8192^2 + 32000 * 8192; EAGLE's fc 2 * 4096^2 and a layer of 7B; EAGLE-3's fc 3 * 4096^2, a
// layer whose queries, keys and values read twice as much, and an lm head.
TEST(PartWeightsTest, AreThoseOfTheReleasedHeads) {
  const model::ModelConfig config = ShapeConfig("7b");
  const std::tuple<const char*, int64_t, size_t> kinds[] = {{"medusa", 591, 5},   {"hydra", 994, 5},
                                                            {"hydra++", 1264, 5}, {"redrafter", 430, 2},
                                                            {"eagle", 236, 2},    {"eagle3", 434, 2}};
  for (const auto& [name, millions, parts] : kinds) {
    const std::vector<int64_t> weights = PartWeights(FileOf(*PublishedHeads(name)), config, config.vocab_size);
    ASSERT_EQ(weights.size(), parts) << name;
    EXPECT_EQ((std::accumulate(weights.begin(), weights.end(), int64_t{0}) + 500000) / 1000000, millions) << name;
    EXPECT_EQ(weights[0] > 0, std::string(name) == "hydra++");
  }
}

HeadsOptions OptionsFor(const model::ModelWeights& base, kernels::Queue* queue, std::string_view name,
                        const std::vector<std::unique_ptr<draft::Drafter>>& drafters) {
  HeadsOptions options{.queue = queue, .base = &base};
  options.drafter = drafters[0].get();
  options.portable = drafters[1].get();
  if (const auto info = PublishedHeads(name)) {
    options.part_weights = PartWeights(FileOf(*info), base.config, base.config.vocab_size);
  }
  options.seconds = 0;
  return options;
}

TEST(HeadsTest, EveryKindIsCheckedAndTimedOnEveryTarget) {
  base::ThreadPool pool(2, false);
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kW4A8}) {
      kernels::Queue queue{&pool, table}, portable{&pool, &kernels::PortableKernels()};
      const model::ModelWeights base = SmallModel(format, queue);
      for (const std::string_view name : RandomDrafterNames()) {
        if (name == "model-1b" || (table != kernels::AvailableKernels().back() && name != "hydra++")) continue;
        kernels::Queue* const queues[] = {&queue, &portable};
        const auto drafters = MakeRandomDrafters({.name = std::string(name), .format = format}, base, queues, {});
        HeadsOptions options = OptionsFor(base, &queue, name, drafters);
        options.tree = Chain(std::min(4, drafters[0]->usual_depth()));
        const HeadsResult result = MeasureHeads(options);
        EXPECT_TRUE(result.checked);
        EXPECT_EQ(result.rounds, 3);
        const bool is_one = options.part_weights.size() <= 2;
        ASSERT_EQ(result.parts.size(), options.tree.max_depth() + (name == "hydra++" ? 2U : 1U)) << name;
        EXPECT_EQ(result.parts.back().name, "all");
        EXPECT_EQ(result.parts[0].name, name == "hydra++" ? "prefix layer" : is_one ? "level 1" : "head 1");
        if (!is_one) {
          EXPECT_NEAR(static_cast<double>(result.parts.back().bytes),
                      static_cast<double>(drafters[0]->weight_bytes() - drafters[0]->table_bytes()), 8);
        } else {
          EXPECT_GT(result.parts[0].bytes, 0);
          EXPECT_LE(result.parts[1].bytes, result.parts[0].bytes);  // the first level may project hidden states, too
        }
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
  const auto drafters = MakeRandomDrafters({.name = "hydra++", .format = WeightFormat::kBF16}, base, queues, {});
  HeadsOptions options = OptionsFor(base, &queue, "hydra++", drafters);
  options.tree = Chain(2);
  EXPECT_THROW(MeasureHeads(options), InternalError);
}

}  // namespace
}  // namespace hydrant::eval::heads_test
