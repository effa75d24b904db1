// SPDX-License-Identifier: Apache-2.0
// Runs that are begun anew, broken off and gone on with: what lies in their folder is what they say.
#include "train/fit/train_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "base/mapped_file.h"
#include "checkpoint/tensor_source.h"
#include "hydrant/error.h"
#include "tests/kept_run.h"
#include "tests/tiny_heads_run.h"

namespace hydrant::train::train_heads_test {
namespace {

namespace fs = std::filesystem;
using test::Kept;
using testing::ElementsAre;
using testing::HasSubstr;

class TrainHeadsTest : public test::TinyHeadsRun {
 protected:
  // Medusa heads alone, in `out` itself.
  TrainHeadsOptions MedusaOptions(const std::string& out) const {
    TrainHeadsOptions options = Options(out);
    options.heads.pop_back();
    return options;
  }

  static std::string MessageOf(const TrainHeadsOptions& options) {
    try {
      TrainHeads(options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(TrainHeadsTest, ABeginningAnewLeavesNoWeightsOfTheRunBefore) {
  TrainHeadsOptions options = MedusaOptions("out");
  TrainHeads(options);
  options.replace = true;
  options.file = HeadFile::kSafetensors;
  TrainHeads(options);
  EXPECT_THAT(checkpoint::HeadFilesIn(options.out), ElementsAre("medusa_lm_head.safetensors"));
  options.heads.front().shape.arch = "eagle";
  options.heads.front().shape.num_heads = 0;
  options.heads.front().recipe.num_passes = 1;
  TrainHeads(options);
  EXPECT_THAT(checkpoint::HeadFilesIn(options.out), ElementsAre("model.safetensors"));
}

TEST_F(TrainHeadsTest, WritesOverNoModelThatNoRunHasMade) {
  TrainHeadsOptions options = MedusaOptions("out");
  options.replace = true;
  fs::create_directories(options.out);
  fs::copy_file(dir_.path() + "/model.safetensors", options.out + "/model.safetensors");
  EXPECT_THAT(MessageOf(options), HasSubstr("model.safetensors: is of a model that no run has made"));
  EXPECT_FALSE(fs::exists(options.out + "/config.json"));
}

// The checkpoint comes first: a run that ends between the two has no heads yet.
TEST_F(TrainHeadsTest, GoingOnWritesHeadsThatAreNotThere) {
  TrainHeadsOptions options = MedusaOptions("out");
  options.save_every = 1000;  // its only save is the last
  fs::create_directories(options.out + "/medusa_lm_head.pt");
  options.replace = true;
  EXPECT_THAT(MessageOf(options), HasSubstr("medusa_lm_head.pt"));
  fs::remove(options.out + "/medusa_lm_head.pt");
  options.resume = true;
  const TrainHeadsReport report = TrainHeads(options);
  EXPECT_EQ(report.steps, report.all_steps);
  TrainHeadsOptions whole = MedusaOptions("whole");
  TrainHeads(whole);
  EXPECT_EQ(base::ReadTextFile(options.out + "/medusa_lm_head.pt"),
            base::ReadTextFile(whole.out + "/medusa_lm_head.pt"));
}

TEST_F(TrainHeadsTest, AMeasurementThatWasStoppedIsMadeWhenTheRunGoesOn) {
  TrainHeadsOptions options = MedusaOptions("out"), whole = MedusaOptions("whole");
  for (TrainHeadsOptions* one : {&options, &whole}) {
    one->eval_every = 2;
    one->eval_texts = 2;
    one->eval_tokens = 8;
  }
  const TrainHeadsReport expected = TrainHeads(whole);
  EXPECT_GT(expected.heads.front().tokens_per_step, 0);
  // Measurements after steps 2, 4 and the last; the second is stopped.
  std::atomic<bool> stop = false;
  int measured = 0;
  options.stop = &stop;
  options.on_stage = [&](const std::string& stage, double) {
    if (stage.starts_with("measuring")) stop = ++measured == 2;
  };
  const TrainHeadsReport stopped = TrainHeads(options);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.steps, 4);
  stop = false;
  options.on_stage = {};
  options.resume = true;
  EXPECT_EQ(TrainHeads(options).heads.front().tokens_per_step, expected.heads.front().tokens_per_step);
  const auto measurements = [](const TrainHeadsOptions& of) {
    const std::string text = base::ReadTextFile(of.out + "/training/metrics.jsonl");
    std::string lines;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      if (line.find("tokens_per_step") != std::string::npos) lines += line + "\n";
    }
    return lines;
  };
  EXPECT_EQ(measurements(options), measurements(whole));
}

TEST_F(TrainHeadsTest, ABeginningAnewThatEndsAtOnceIsGoneOnWith) {
  TrainHeadsOptions options = MedusaOptions("out");
  options.heads.front().recipe.clip = 2;
  TrainHeads(options);
  options.heads.front().recipe.clip = 1;
  options.replace = true;
  options.save_every = 1000;
  options.on_progress = [](const TrainProgress&) { throw UserError("killed"); };
  EXPECT_EQ(MessageOf(options), "killed");
  options.resume = true;
  options.on_progress = {};
  EXPECT_GT(TrainHeads(options).tokens, 0) << "from its first step";
  const TrainHeadsOptions whole = MedusaOptions("whole");
  TrainHeads(whole);
  EXPECT_EQ(Kept(options.out, "medusa.values"), Kept(whole.out, "medusa.values"));
}

TEST_F(TrainHeadsTest, ABeginningAnewThatIsRefusedLeavesTheRunBefore) {
  TrainHeadsOptions options = MedusaOptions("out");
  TrainHeads(options);
  const std::string before = base::ReadTextFile(options.out + "/training/checkpoint.safetensors");
  options.replace = true;
  options.row_tokens = 1 << 19;
  EXPECT_THAT(MessageOf(options), HasSubstr("positions"));
  EXPECT_EQ(base::ReadTextFile(options.out + "/training/checkpoint.safetensors"), before);
}

TEST_F(TrainHeadsTest, GoesOnOnlyWithStatesAsTheyWere) {
  TrainHeadsOptions options = MedusaOptions("out");
  options.heads.front().recipe.epochs = 2;
  options.cache_most = ~uint64_t{0};
  TrainHeads(options);
  options.resume = true;
  options.cache_most = 0;
  EXPECT_THAT(MessageOf(options), HasSubstr("'keeps_states' true, and this one has false"));
  options.cache_most = ~uint64_t{0};
  options.heads.front().recipe.clip = 2;
  EXPECT_THAT(MessageOf(options), HasSubstr("'heads[0].recipe.clip' 1.0, and this one has 2.0"));
}

TEST_F(TrainHeadsTest, WhatCannotBeLearnedIsRefused) {
  TrainHeadsOptions options = MedusaOptions("out");
  options.heads.push_back(options.heads.front());
  EXPECT_THAT(MessageOf(options), HasSubstr("has medusa twice"));
  options.heads.pop_back();
  options.heads.front().shape.hidden_layer_offset = 1;
  EXPECT_THAT(MessageOf(options), HasSubstr("the files of medusa cannot say it"));
  options.heads.front().shape.hidden_layer_offset = 0;
  options.heads.front().recipe.teacher_weight = options.heads.front().recipe.label_weight = 0;
  EXPECT_THAT(MessageOf(options), HasSubstr("nothing is to be learned"));
}

}  // namespace
}  // namespace hydrant::train::train_heads_test
