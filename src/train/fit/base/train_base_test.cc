// SPDX-License-Identifier: Apache-2.0
// Whole runs: alone, stopped and gone on with, on several ranks.
#include "train/fit/base/train_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
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

namespace hydrant::train::train_base_test {
namespace {

using test::Distance;
using test::Kept;
using testing::AllOf;
using testing::HasSubstr;

class TrainBaseTest : public testing::Test {
 protected:
  TrainBaseTest() {
    std::string text;
    for (int i = 0; i < 600; ++i) text += "the cat sat on the mat and ";
    text_ = dir_.Write("text.txt", text);
    tokenizer_.Write("tokenizer.json", test::TinyTokenizer());
  }

  TrainBaseOptions Options(const std::string& out) const {
    TrainBaseOptions options;
    options.data = {text_};
    options.out = dir_.path() + "/" + out;
    options.shape = test::TinyShape();
    options.tokenizer = tokenizer_.path();
    options.threads = 1;
    options.rows = 4;
    options.precision = "f32";
    options.log_every = 5;
    options.save_every = 10;
    options.eval_every = 20;
    options.eval_texts = 4;
    options.recipe.warmup_steps = 5;
    options.dtype = DType::kF32;
    return options;
  }

  std::string MessageOf(const TrainBaseOptions& options) const {
    try {
      TrainBase(options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  const test::TempDir dir_, tokenizer_;
  std::string text_;
};

TEST_F(TrainBaseTest, LearnsAPeriodicTextThatTheEngineThenWrites) {
  TrainBaseOptions options = Options("out");
  options.recipe.peak_rate = 0.01;
  options.recipe.epochs = 6;
  std::string noted;
  options.note = [&](const std::string& text) { noted += text; };
  const TrainBaseReport report = TrainBase(options);
  EXPECT_THAT(noted, HasSubstr("parameters"));
  EXPECT_EQ(report.steps, report.all_steps);
  EXPECT_LT(report.loss, 0.15) << "of 6.2 at the start";
  EXPECT_LT(report.held_out_loss, 0.15);
  EXPECT_GT(report.held_out_loss, 0.2 * report.loss) << "a mean over labels";
  EXPECT_NEAR(report.perplexity, std::exp(report.held_out_loss), 1e-9);
  EXPECT_EQ(report.num_parameters, static_cast<int64_t>(Kept(options.out, "base.values").size()));
  const std::string metrics = base::ReadTextFile(options.out + "/training/metrics.jsonl");
  EXPECT_THAT(metrics, AllOf(HasSubstr("\"loss\":"), HasSubstr("\"perplexity\":"), HasSubstr("\"learning_rate\":")));
  EXPECT_THAT(base::ReadTextFile(options.out + "/training/loss.svg"), HasSubstr("perplexity, held-out text"));
  const size_t rate = metrics.rfind("\"learning_rate\":") + 16;
  const Schedule schedule{.peak = options.recipe.peak_rate,
                          .warmup_steps = options.recipe.warmup_steps,
                          .total_steps = report.all_steps,
                          .final_factor = options.recipe.final_factor};
  EXPECT_NEAR(std::stod(metrics.substr(rate)), schedule.At(report.all_steps - 1), 1e-12) << "of the last step";

  EngineOptions engine_options;
  engine_options.model = options.out;
  Engine engine(engine_options);
  EXPECT_THAT(engine.info().warnings, testing::IsEmpty());
  GenerationRequest request;
  request.prompt_ids = engine.Tokenize("the cat sat on the mat and the cat", false, true);
  request.stop.max_tokens = 20;
  EXPECT_THAT(engine.Generate(request).text, testing::StartsWith(" sat on the mat and the cat sat"));
}

TEST_F(TrainBaseTest, GoesOnBitForBit) {
  TrainBaseOptions whole = Options("whole"), parts = Options("parts");
  ASSERT_GT(TrainBase(whole).steps, 20);
  std::atomic<bool> stop = false;
  parts.stop = &stop;
  parts.on_progress = [&](const TrainProgress& now) { stop = now.step == 17; };
  const TrainBaseReport first = TrainBase(parts);
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.steps, 17);
  EXPECT_THAT(MessageOf(parts), HasSubstr("holds a run or a model already"));
  parts.resume = true;
  parts.on_progress = {};
  stop = false;
  parts.tokenizer = "gone";  // the run has it
  EXPECT_FALSE(TrainBase(parts).stopped);
  for (const char* name : {"base.values", "base.mean", "base.variance"}) {
    EXPECT_EQ(Kept(parts.out, name), Kept(whole.out, name)) << name;
  }
  EXPECT_EQ(base::ReadTextFile(parts.out + "/model.safetensors"), base::ReadTextFile(whole.out + "/model.safetensors"));
  parts.recipe.weight_decay = 0.2;
  EXPECT_THAT(MessageOf(parts), HasSubstr("'recipe.weight_decay' 0.1, and this one has 0.2"));
}

// As in train_heads_ranks_test.cc: with that epsilon steps are no further off than sums of f32 in another order.
TEST_F(TrainBaseTest, SeveralRanksEqualOneProcess) {
  TrainBaseOptions start = Options("start"), alone = Options("alone");
  for (TrainBaseOptions* options : {&start, &alone}) {
    options->recipe.epsilon = 1e-3;
    options->tokens = 2000;
    options->recipe.warmup_steps = 0;
  }
  start.recipe.peak_rate = 0;
  TrainBase(start);
  const TrainBaseReport report = TrainBase(alone);
  const std::vector<float> from = Kept(start.out, "base.values"), expected = Kept(alone.out, "base.values");
  for (const int size : {2, 3, 5}) {  // five ranks for four rows
    TrainBaseOptions together = alone;
    together.out = dir_.path() + "/together" + std::to_string(size);
    parallel::RunThreads(size, {}, [&](parallel::Communicator& ranks) {
      TrainBaseOptions own = together;
      own.ranks = &ranks;
      if (ranks.rank() != 0) own.tokenizer = "gone";  // they get that of rank 0
      const TrainBaseReport of_rank = TrainBase(own);
      EXPECT_EQ(of_rank.tokens, report.tokens);
      EXPECT_NEAR(of_rank.loss, report.loss, 1e-4);
    });
    const double way = Distance(from, expected);
    EXPECT_GT(way, 0.01);
    EXPECT_LT(Distance(Kept(together.out, "base.values"), expected), 1e-5 * way);
    EXPECT_EQ(base::ReadTextFile(together.out + "/config.json"), base::ReadTextFile(alone.out + "/config.json"));
  }
}

// The checkpoint comes before the model, and a tokenizer that is new lies nowhere else.
TEST_F(TrainBaseTest, GoesOnWhereTheModelIsNotWrittenYet) {
  TrainBaseOptions options = Options("out");
  options.tokens = 2000;
  std::filesystem::create_directories(options.out + "/tokenizer.json");
  options.replace = true;
  EXPECT_THAT(MessageOf(options), HasSubstr("tokenizer.json"));
  std::filesystem::remove(options.out + "/tokenizer.json");
  options.resume = true;
  options.tokenizer = "gone";
  const TrainBaseReport report = TrainBase(options);
  EXPECT_EQ(report.steps, report.all_steps);
  EXPECT_EQ(base::ReadTextFile(options.out + "/tokenizer.json"), test::TinyTokenizer());
  const test::TempDir other;
  other.Write("tokenizer.json", base::ReadTextFile(test::SourceDir() + "/models/tale-14m/tokenizer_config.json"));
  options.tokenizer = other.path();
  EXPECT_NE(MessageOf(options), "no error") << "another tokenizer";
}

TEST_F(TrainBaseTest, WritesOverNoModelThatItReads) {
  TrainBaseOptions options = Options("out");
  options.out = tokenizer_.path();
  options.replace = true;
  EXPECT_THAT(MessageOf(options), HasSubstr("is a model that the run reads"));
}

TEST_F(TrainBaseTest, TheModelHasTheTokenizersTokens) {
  TrainBaseOptions options = Options("out");
  options.tokens = 300;
  options.shape.vocab_size = test::kTinyTokens - 1;
  EXPECT_THAT(MessageOf(options), AllOf(HasSubstr("'vocab_size' is 499"), HasSubstr("500 tokens")));
  options.shape.vocab_size.reset();
  TrainBase(options);
  EXPECT_EQ(base::ReadJsonFile(options.out + "/config.json")["vocab_size"], test::kTinyTokens);
  EXPECT_EQ(base::ReadTextFile(options.out + "/tokenizer.json"), test::TinyTokenizer());
}

TEST_F(TrainBaseTest, BadOptionsAreRefusedBeforeAnythingIsWritten) {
  const auto with = [&](const auto& change) {
    TrainBaseOptions options = Options("out");
    change(options);
    std::string message = MessageOf(options);
    EXPECT_FALSE(std::filesystem::exists(options.out)) << message;
    return message;
  };
  EXPECT_THAT(with([](auto& o) { o.shape.num_heads = 5; }), HasSubstr("num_attention_heads"));
  EXPECT_THAT(with([](auto& o) { o.row_tokens = 65; }),
              AllOf(HasSubstr("row_tokens is 65"), HasSubstr("64 positions")));
  EXPECT_THAT(with([](auto& o) { o.tokenizer = "", o.template_name = "llama-3"; }), HasSubstr("'vicuna' alone"));
  EXPECT_THAT(with([](auto& o) { o.data = {}; }), HasSubstr("data is empty"));
  EXPECT_THAT(with([](auto& o) { o.shape.hidden_size = int64_t{1} << 22; }), HasSubstr("20 bytes each"));
  EXPECT_THAT(with([](auto& o) { o.precision = "f64"; }), HasSubstr("f64"));
}

}  // namespace
}  // namespace hydrant::train::train_base_test
