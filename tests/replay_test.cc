// SPDX-License-Identifier: Apache-2.0
// Replayed decoding is real decoding: over recorded ranks every tree accepts, at every step of every reply, what the
// engine accepts. Whatever is wrong in the recording, the order of the candidates or the walk shows here.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "eval/record.h"
#include "tests/drafting_kinds.h"
#include "tests/scheduled.h"

namespace hydrant::test::replay_test {
namespace {

using eval::RecordOptions;

// What the engine says of each reply with that tree.
std::vector<GenerationResult> Decode(Engine& engine, const eval::Recording& recording, const RecordOptions& options,
                                     const std::string& tree) {
  std::vector<GenerationRequest> requests;
  for (const eval::RecordedReply& reply : recording.replies) {
    GenerationRequest& request = requests.emplace_back();
    request.prompt_ids = reply.prompt_ids;
    request.sampling = options.sampling;
    request.sampling.seed = reply.seed;
    request.stop = options.stop;
    request.tree = tree;
  }
  return engine.GenerateBatch(requests);
}

std::vector<int32_t> EmittedOf(const std::vector<tree::ReplayedStep>& steps) {
  std::vector<int32_t> emitted;
  for (const tree::ReplayedStep& step : steps) emitted.push_back(step.num_accepted + 1);
  return emitted;
}

// Returns how many drafted tokens were accepted.
int64_t ExpectSameSteps(Engine& engine, const eval::Recording& recording, const RecordOptions& options,
                        const std::string& tree) {
  const tree::Replayed replayed = tree::Replay(recording.ranks, tree::ParseTree(tree).topology);
  const std::vector<GenerationResult> results = Decode(engine, recording, options, tree);
  int64_t tokens = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE("reply " + std::to_string(i) + " with " + tree.substr(0, 40));
    EXPECT_EQ(results[i].error, nullptr);
    EXPECT_EQ(results[i].token_ids, recording.replies[i].token_ids);
    EXPECT_EQ(results[i].finish_reason, recording.replies[i].finish_reason);
    EXPECT_EQ(results[i].num_emitted, EmittedOf(replayed.replies[i]));
    tokens += static_cast<int64_t>(results[i].token_ids.size()) - 1;
  }
  EXPECT_EQ(replayed.num_tokens, tokens);
  return replayed.num_emitted - replayed.num_steps;
}

// Records once, and decodes with each tree.
void ExpectReplayed(const EngineOptions& engine_options, const std::vector<Tokens>& prompts,
                    const RecordOptions& options, bool is_trained) {
  std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(engine_options);
  const eval::Recording recording = eval::Record(*loaded, prompts, options);
  EXPECT_EQ(tree::ProblemIn(recording.ranks), "");
  Engine engine(std::move(loaded));
  for (const std::string& tree : EveryTree(recording.ranks.num_levels)) {
    const int64_t accepted = ExpectSameSteps(engine, recording, options, tree);
    EXPECT_GE(accepted, is_trained ? 1 : 0) << tree.substr(0, 40);
  }
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings = EverySetting();
  SamplingOptions noisy;  // ranked inside the lm head, as greedy drafts are
  noisy.temperature = 0.8F;
  noisy.seed = 21;
  settings.push_back({"noisy", noisy});
  SamplingOptions strict;  // what is on a path hardly comes again
  strict.repetition_penalty = 1.5F;
  strict.frequency_penalty = 4.0F;
  settings.push_back({"strict", strict});
  return settings;
}

std::vector<DraftingKind> KindsThatRank() {
  std::vector<DraftingKind> kinds = DraftingKinds();
  std::erase_if(kinds, [](const DraftingKind& kind) { return kind.drafts.size() != 1; });
  return kinds;
}

class Replay : public testing::TestWithParam<DraftingKind> {};

TEST_P(Replay, AcceptsWhatTheEngineAccepts) {
  if (!IsThere(GetParam())) GTEST_SKIP() << "skipped: its heads are not beside the checkout";
  EngineOptions engine_options = OptionsOf(GetParam());
  engine_options.load_tokenizer = false;
  engine_options.prefill_chunk = 16;  // a prompt of several chunks, and one that ends within a chunk
  const std::vector<Tokens> prompts{Prompt(), PromptOf(1, 1), PromptOf(40, 2), PromptOf(32, 3), PromptOf(5, 4)};
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(setting.name);
    RecordOptions options{.sampling = setting.sampling, .side_by_side = 3};
    options.stop.max_tokens = 24;
    ExpectReplayed(engine_options, prompts, options, IsTrained(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryKind, Replay, testing::ValuesIn(KindsThatRank()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// A tree is cut where the context ends: no node stands at a position that the model does not have.
TEST(ReplayAtTheEnd, OfTheContextAcceptsWhatTheEngineAccepts) {
  EngineOptions engine_options;
  engine_options.model = Golden("base_mha");
  engine_options.draft = Golden("hydra/mlp_k3_l2");
  engine_options.load_tokenizer = false;
  RecordOptions options;
  options.stop = {.max_tokens = 40, .ignore_eos = true, .stop = {}};
  ExpectReplayed(engine_options, {PromptOf(500), PromptOf(497, 1), PromptOf(511, 2), PromptOf(512, 3)}, options, true);
}

class ReplayTale : public testing::Test {
 protected:
  ReplayTale() {
    engine_options_.model = Embedded("tale-14m");
    engine_options_.draft = Embedded("tale-14m-hydra-pp");
    for (int32_t i = 0; i < 6; ++i) {
      prompts_.push_back(TalePrompt());
      prompts_.back().resize(prompts_.back().size() - static_cast<size_t>(i));
    }
    noisy_.temperature = 0.8F;
    noisy_.seed = 3;
  }

  void Expect(const RecordOptions& options) const { ExpectReplayed(engine_options_, prompts_, options, true); }

  EngineOptions engine_options_;
  std::vector<Tokens> prompts_;
  SamplingOptions noisy_;
};

TEST_F(ReplayTale, AcceptsWhatTheEngineAccepts) {
  for (const SamplingOptions& sampling : {SamplingOptions(), noisy_}) {
    RecordOptions options{.sampling = sampling};
    options.stop.max_tokens = 48;
    Expect(options);
  }
}

TEST_F(ReplayTale, EndsAtAnEosAsTheEngineDoes) {
  std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(engine_options_);
  RecordOptions options{.sampling = noisy_};
  options.stop.max_tokens = 120;
  const eval::Recording recording = eval::Record(*loaded, std::vector<Tokens>{{1}, {1, 300}, {1}, {1}}, options);
  EXPECT_TRUE(std::ranges::any_of(recording.replies, [](const eval::RecordedReply& reply) {
    return reply.finish_reason == FinishReason::kEos && !reply.past_end.empty();
  }));
  EXPECT_NE(recording.replies[0].token_ids, recording.replies[2].token_ids) << "each has noise of its own";
  Engine engine(std::move(loaded));
  for (const std::string& tree : EveryTree(recording.ranks.num_levels)) {
    ExpectSameSteps(engine, recording, options, tree);
  }
}

// Stop strings and limits cut the last step, also in the middle of what it accepts.
TEST_F(ReplayTale, EndsWhereTheEngineEnds) {
  std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(engine_options_);
  RecordOptions options{.sampling = noisy_};
  options.stop.stop = {"the", "She", " was"};
  options.stop.max_tokens = 40;
  const eval::Recording recording = eval::Record(*loaded, prompts_, options);
  EXPECT_TRUE(std::ranges::any_of(
      recording.replies, [](const eval::RecordedReply& reply) { return reply.finish_reason == FinishReason::kStop; }));
  Engine engine(std::move(loaded));
  for (const std::string& tree : EveryTree(recording.ranks.num_levels)) {
    ExpectSameSteps(engine, recording, options, tree);
  }
  for (int32_t tokens = 1; tokens <= 9; ++tokens) {
    options.stop = {.max_tokens = tokens, .ignore_eos = true, .stop = {}};
    std::unique_ptr<load::LoadedModel> again = load::LoadModel(engine_options_);
    const eval::Recording limited = eval::Record(*again, prompts_, options);
    Engine limited_engine(std::move(again));
    ExpectSameSteps(limited_engine, limited, options, EveryTree(limited.ranks.num_levels)[1]);
  }
}

TEST_F(ReplayTale, AcceptsWhatTheEngineAcceptsWithPackedWeights) {
  engine_options_.weights = "w4a8";
  engine_options_.head_weights = "w8a8";
  RecordOptions options{.sampling = noisy_};
  options.stop.max_tokens = 32;
  Expect(options);
}

}  // namespace
}  // namespace hydrant::test::replay_test
