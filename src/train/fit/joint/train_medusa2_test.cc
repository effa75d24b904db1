// SPDX-License-Identifier: Apache-2.0
// Whole runs: both stages, stopped and gone on with, on several ranks.
#include "train/fit/joint/train_medusa2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "hydrant/engine.h"
#include "hydrant/error.h"
#include "parallel/communicator.h"
#include "tests/kept_run.h"
#include "tests/test_data.h"
#include "tests/tiny_base.h"

namespace hydrant::train::train_medusa2_test {
namespace {

using test::Distance;
using test::Kept;
using testing::HasSubstr;

class TrainMedusa2Test : public testing::Test {
 protected:
  TrainMedusa2Test() {
    const std::string golden = test::SourceDir() + "/tests/golden/base_mha/";
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(golden + file, base_.path() + "/" + file);
    }
    base_.Write("tokenizer.json", test::TinyTokenizer());
    std::string text;
    for (int i = 0; i < 150; ++i) text += "the cat sat on the mat and ";
    text_ = dir_.Write("text.txt", text);
  }

  TrainMedusa2Options Options(const std::string& out) const {
    TrainMedusa2Options options;
    options.engine.model = base_.path();
    options.engine.threads = 1;
    options.data = {text_};
    options.out = dir_.path() + "/" + out;
    options.shape = {.arch = "medusa", .num_heads = 2};
    options.heads.warmup_steps = options.joint.warmup_steps = 1;
    options.joint.peak_rate = 1e-3;
    options.row_tokens = 32;
    options.rows = 4;
    options.precision = "f32";
    options.dtype = DType::kF32;
    options.log_every = 2;
    options.save_every = 2;
    options.eval_every = 0;
    return options;
  }

  // Stops after `step` steps.
  TrainMedusa2Report RunUntil(TrainMedusa2Options options, int64_t step) const {
    std::atomic<bool> stop = step == 0;
    options.stop = &stop;
    options.on_progress = [&](const TrainProgress& now) { stop = now.step >= step; };
    return TrainMedusa2(options);
  }

  const test::TempDir dir_, base_;
  std::string text_;
};

TEST_F(TrainMedusa2Test, TrainsTheHeadsAloneAndThenBoth) {
  TrainMedusa2Options options = Options("out");
  options.heads.epochs = 2;
  options.joint.epochs = 6;
  const TrainMedusa2Report start = RunUntil(options, 1);
  ASSERT_TRUE(start.stopped);
  const std::vector<float> before = Kept(options.out, "base.values"), heads = Kept(options.out, "medusa.values");
  options.resume = true;
  const TrainMedusa2Report alone = RunUntil(options, start.all_steps / 4);
  EXPECT_EQ(alone.steps, start.all_steps / 4);
  EXPECT_EQ(alone.base_loss, 0);
  EXPECT_EQ(Kept(options.out, "base.values"), before) << "while the heads learn alone";
  EXPECT_NE(Kept(options.out, "medusa.values"), heads);
  options.eval_every = 100;
  EXPECT_THROW(TrainMedusa2(options), FileError) << "texts are held out of other steps";
  options.eval_every = 0;
  const TrainMedusa2Report both = TrainMedusa2(options);
  EXPECT_GT(Distance(Kept(options.out, "base.values"), before), 0.01);
  EXPECT_LT(both.base_loss, 5) << "of 6.2 at the start";

  EngineOptions engine_options;
  engine_options.model = both.base_folder;
  engine_options.draft = both.heads_folder;
  Engine engine(engine_options);
  EXPECT_THAT(engine.info().warnings, testing::IsEmpty());
  EXPECT_EQ(engine.info().drafter, "medusa");
}

TEST_F(TrainMedusa2Test, MeasuresBaseAndHeads) {
  TrainMedusa2Options options = Options("out");
  options.eval_every = 4;
  options.eval_texts = 2;
  options.eval_tokens = 8;
  options.joint.epochs = 4;
  options.self_distillation = true;
  const TrainMedusa2Report report = TrainMedusa2(options);
  EXPECT_GE(report.tokens_per_step, 1);
  const double before = std::log(report.perplexity_before);
  EXPECT_NEAR(std::log(report.perplexity), before, 0.5) << "it keeps the distribution that it had";
  const std::string metrics = base::ReadTextFile(options.out + "/training/metrics.jsonl");
  EXPECT_THAT(metrics, testing::AllOf(HasSubstr("\"perplexity_before\""), HasSubstr("\"arch\":\"base\"")));
  options.self_distillation = false;
  options.replace = true;
  EXPECT_LT(std::log(TrainMedusa2(options).perplexity), before - 1) << "it learns the text";
}

TEST_F(TrainMedusa2Test, GoesOnBitForBit) {
  TrainMedusa2Options whole = Options("whole"), parts = Options("parts");
  for (TrainMedusa2Options* options : {&whole, &parts}) options->shape = {.arch = "hydra", .num_heads = 2};
  const TrainMedusa2Report report = TrainMedusa2(whole);
  RunUntil(parts, report.all_steps / 4);
  parts.resume = true;
  RunUntil(parts, report.all_steps - 2);
  TrainMedusa2(parts);
  for (const char* name : {"base.values", "base.variance", "hydra.values", "hydra.mean"}) {
    EXPECT_EQ(Kept(whole.out, name), Kept(parts.out, name)) << name;
  }
  parts.heads_weight = 0.3;
  EXPECT_THROW(TrainMedusa2(parts), FileError);
}

TEST_F(TrainMedusa2Test, TwoRanksMakeTheStepsOfOne) {
  TrainMedusa2Options start = Options("start"), alone = Options("alone"), together = Options("together");
  RunUntil(start, 1);
  const std::vector<float> before = Kept(start.out, "base.values");
  TrainMedusa2(alone);
  parallel::RunThreads(2, {}, [&](parallel::Communicator& ranks) {
    TrainMedusa2Options own = together;
    own.ranks = &ranks;
    TrainMedusa2(own);
  });
  const std::vector<float> expected = Kept(alone.out, "base.values");
  EXPECT_LT(Distance(Kept(together.out, "base.values"), expected), 1e-3 * Distance(expected, before));
}

TEST_F(TrainMedusa2Test, WritesOverNoModel) {
  TrainMedusa2Options options = Options("out");
  const test::TempDir other;
  std::filesystem::create_directories(other.path() + "/base");
  const std::string config = other.Write("base/config.json", "{}");
  options.out = other.path();
  EXPECT_THROW(TrainMedusa2(options), FileError) << "another model";
  options.engine.model = other.path() + "/base";
  options.replace = true;
  EXPECT_THROW(TrainMedusa2(options), FileError) << "its own base";
  EXPECT_EQ(base::ReadTextFile(config), "{}");
}

TEST_F(TrainMedusa2Test, RefusesHeadsThatGoOnTokenByToken) {
  TrainMedusa2Options options = Options("out");
  options.shape.arch = "eagle";
  EXPECT_THROW(TrainMedusa2(options), UserError);
  EXPECT_FALSE(std::filesystem::exists(options.out));
}

}  // namespace
}  // namespace hydrant::train::train_medusa2_test
