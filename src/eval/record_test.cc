// SPDX-License-Identifier: Apache-2.0
#include "eval/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "eval/chunked_forward.h"
#include "hydrant/error.h"
#include "sampling/choose.h"
#include "tests/scheduled.h"

namespace hydrant::eval::record_test {
namespace {

using test::PromptOf;
using test::Tokens;
using testing::HasSubstr;

std::unique_ptr<load::LoadedModel> Load(const std::string& heads) {
  EngineOptions options;
  options.model = test::Golden("base_mha");
  if (!heads.empty()) options.draft = test::Golden(heads);
  options.load_tokenizer = false;
  options.prefill_chunk = 9;
  return load::LoadModel(options);
}

std::vector<Tokens> Prompts() {
  return {PromptOf(9), PromptOf(1, 1), PromptOf(30, 2), PromptOf(14, 3), PromptOf(2, 4)};
}

RecordOptions Options(float temperature = 0.8F) {
  RecordOptions options{.past_end = 3, .num_ranks = 20, .side_by_side = 3};
  options.sampling.temperature = temperature;
  options.sampling.seed = 40;
  options.stop.max_tokens = 12;
  options.stop.ignore_eos = true;
  return options;
}

template <typename Fn>
std::string ErrorOf(const Fn& fn) {
  try {
    fn();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(RecordRepliesTest, GivesWhatPlainDecodingGives) {
  const RecordOptions options = Options();
  const std::vector<RecordedReply> replies = RecordReplies(*Load("hydra/mlp_k3_l2"), Prompts(), options);
  Engine engine(Load(""));
  ASSERT_EQ(replies.size(), 5U);
  for (size_t i = 0; i < replies.size(); ++i) {
    GenerationRequest request;
    request.prompt_ids = Prompts()[i];
    request.sampling = options.sampling;
    request.sampling.seed = 40 + i;
    request.stop = options.stop;
    EXPECT_EQ(replies[i].token_ids, engine.Generate(request).token_ids);
    EXPECT_EQ(replies[i].prompt_ids, Prompts()[i]);
    EXPECT_EQ(replies[i].seed, 40 + i);
    EXPECT_EQ(replies[i].finish_reason, FinishReason::kLength);
    request.stop.max_tokens += 3;
    Tokens all = replies[i].token_ids;
    all.insert(all.end(), replies[i].past_end.begin(), replies[i].past_end.end());
    EXPECT_EQ(all, engine.Generate(request).token_ids) << "with what comes behind the end";
  }
}

TEST(RecordRepliesTest, SharesOfTheWorkGrowToOneAndAnExceptionEndsIt) {
  std::vector<double> shares;
  RecordOptions options = Options();
  options.progress = [&](double share) { shares.push_back(share); };
  const std::unique_ptr<load::LoadedModel> loaded = Load("hydra/mlp_k3_l2");
  Record(*loaded, Prompts(), options);
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_EQ(shares.front(), 0);
  EXPECT_EQ(shares.back(), 1);
  size_t calls = 0;
  for (const size_t most : {size_t{1}, size_t{5}, shares.size() - 3}) {
    calls = 0;
    options.progress = [&](double) {
      if (++calls == most) throw Stopped();
    };
    EXPECT_THROW(Record(*loaded, Prompts(), options), Stopped);
    EXPECT_EQ(calls, most);
  }
}

TEST(RecordRepliesTest, AStopOfTheEngineIsAStopHere) {
  const std::atomic<bool> stop{true};
  const std::unique_ptr<load::LoadedModel> loaded = Load("hydra/mlp_k3_l2");
  loaded->pool->StopWhen(&stop);
  EXPECT_THROW(RecordReplies(*loaded, Prompts(), Options()), Stopped);
  loaded->pool->StopWhen(nullptr);
}

// The logits of every level along a path, from a text that goes up to its root.
Matrix LogitsAfter(load::LoadedModel& loaded, const Tokens& text, const Tokens& path) {
  kv::BlockPool pool(loaded.kv_shape, 8);
  kv::BlockTable table(&pool);
  EXPECT_TRUE(table.Reserve(static_cast<int32_t>(text.size())));
  const std::unique_ptr<draft::DraftState> state = loaded.drafter->NewState({});
  const auto commit = [&](int32_t, int32_t count, const model::ForwardOutput& output) {
    table.Append(count);
    std::vector<kernels::ConstRows> hidden;
    for (size_t w = 0; w < output.captured.size(); ++w) hidden.emplace_back(output.HiddenOf(w));
    const draft::CommitInput input{
        .state = state.get(), .kv = loaded.DraftKvIn(table), .tokens = text, .hidden = hidden, .is_prompt = true};
    loaded.drafter->Commit(std::span(&input, 1));
  };
  ChunkedForward(loaded.decoder.get(), &pool).Run(text, table, 512, 0, commit);
  Matrix logits;
  draft::AlongInput along{.state = state.get(), .kv = loaded.DraftKvIn(table), .tokens = path, .logits = &logits};
  loaded.drafter->LogitsAlong(std::span(&along, 1));
  return logits;
}

int32_t TokensBefore(size_t truth, std::span<const float> logits, std::span<const float> noise, float temperature) {
  const auto score = [&](size_t v) { return temperature > 0 ? logits[v] / temperature + noise[v] : logits[v]; };
  int32_t count = 0;
  for (size_t v = 0; v < logits.size(); ++v) {
    count += score(v) > score(truth) || (score(v) == score(truth) && v < truth) ? 1 : 0;
  }
  return count;
}

// The slow twin: each row by itself.
void ExpectRanksOfEachRow(const std::string& heads, float temperature) {
  SCOPED_TRACE(heads);
  const std::unique_ptr<load::LoadedModel> loaded = Load(heads);
  const RecordOptions options = Options(temperature);
  const Recording recording = Record(*loaded, Prompts(), options);
  const int32_t levels = loaded->drafter->max_depth();
  ASSERT_EQ(recording.ranks.num_levels, levels);
  int found = 0;
  for (size_t i = 0; i < recording.replies.size(); ++i) {
    const RecordedReply& reply = recording.replies[i];
    ASSERT_EQ(recording.ranks.num_rows(i), static_cast<int32_t>(reply.token_ids.size()) - 1);
    Tokens text = reply.token_ids;
    text.insert(text.end(), reply.past_end.begin(), reply.past_end.end());
    sampling::NoiseCache noise(loaded->queue.table, reply.seed, loaded->info.vocab_size);
    for (int32_t t = 0; t < recording.ranks.num_rows(i); t += 4) {
      Tokens before = reply.prompt_ids;
      before.insert(before.end(), text.begin(), text.begin() + t);
      const Matrix logits = LogitsAfter(*loaded, before, Tokens(text.begin() + t, text.begin() + t + levels));
      std::vector<uint8_t> expected(static_cast<size_t>(levels), tree::kNoRank);
      for (int32_t d = 0; d < levels; ++d) {
        const auto truth = static_cast<size_t>(text[static_cast<size_t>(t + 1 + d)]);
        const int32_t rank = TokensBefore(truth, logits.row_span(d), noise.Row(t + 1 + d), temperature);
        if (rank >= options.num_ranks) break;
        expected[static_cast<size_t>(d)] = static_cast<uint8_t>(rank);
        ++found;
      }
      EXPECT_THAT(recording.ranks.Row(i, t), testing::ElementsAreArray(expected)) << "row " << t << " of reply " << i;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(RecordRanksTest, GivesWhatEachRowGivesByItself) {
  for (const float temperature : {0.0F, 0.8F}) {
    for (const char* heads : {"medusa/a_k3_l2", "hydra/mlp_k3_l2", "hydra/prefix_mlp_k2_l1"}) {
      ExpectRanksOfEachRow(heads, temperature);
    }
  }
}

TEST(RecordRanksTest, HangsNotOnTheOtherRepliesNorOnChunks) {
  const std::unique_ptr<load::LoadedModel> loaded = Load("hydra/prefix_mlp_k2_l1");
  RecordOptions options = Options();
  const Recording all = Record(*loaded, Prompts(), options);
  RankContext context = RankContextOf(*loaded);
  for (const auto& [side_by_side, chunk] : {std::pair(1, 1), std::pair(2, 64), std::pair(100, 5)}) {
    options.side_by_side = side_by_side;
    context.chunk = chunk;
    EXPECT_EQ(RecordRanks(context, all.replies, options), all.ranks);
  }
  const tree::RankTable last = RecordRanks(context, std::span(all.replies).last(1), options);
  EXPECT_EQ(last.replies.front(), all.ranks.replies.back());
}

// As training does it: the same replies again and again, and heads that no engine has loaded.
TEST(RecordRanksTest, TakesAnyDrafterOverTheSameBase) {
  const std::unique_ptr<load::LoadedModel> base = Load(""), heads = Load("medusa/a_k3_l2");
  const std::vector<RecordedReply> replies = RecordReplies(*base, Prompts(), Options());
  const tree::RankTable ranks = RecordRanks(RankContextOf(*heads), replies, Options());
  EXPECT_EQ(ranks, Record(*heads, Prompts(), Options()).ranks);
}

TEST(RecordRanksTest, ReadsNothingBehindWhatIsRecorded) {
  const std::unique_ptr<load::LoadedModel> loaded = Load("medusa/a_k3_l2");
  Recording recording = Record(*loaded, Prompts(), Options(0));
  for (RecordedReply& reply : recording.replies) reply.past_end.clear();
  const tree::RankTable ranks = RecordRanks(RankContextOf(*loaded), recording.replies, Options(0));
  for (size_t i = 0; i < ranks.replies.size(); ++i) {
    const int32_t rows = ranks.num_rows(i);
    for (int32_t t = 0; t < rows; ++t) {
      std::vector<uint8_t> expected(recording.ranks.Row(i, t).begin(), recording.ranks.Row(i, t).end());
      for (int32_t d = rows - t; d < 3; ++d) expected[static_cast<size_t>(d)] = tree::kNoRank;
      EXPECT_THAT(ranks.Row(i, t), testing::ElementsAreArray(expected));
    }
  }
}

TEST(RecordRanksTest, RepliesOfOneTokenHaveNoRows) {
  const std::unique_ptr<load::LoadedModel> loaded = Load("hydra/mlp_k3_l2");
  RecordOptions options = Options();
  options.stop.max_tokens = 1;
  double done = 0;
  options.progress = [&done](double share) { done = share; };
  const Recording recording = Record(*loaded, Prompts(), options);
  for (size_t i = 0; i < recording.replies.size(); ++i) {
    EXPECT_EQ(recording.replies[i].token_ids.size(), 1U);
    EXPECT_EQ(recording.ranks.num_rows(i), 0);
  }
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(Record(*loaded, {}, options).replies.empty());
}

TEST(RecordTest, OptionsOutOfRangeAreRefused) {
  const std::unique_ptr<load::LoadedModel> loaded = Load("hydra/mlp_k3_l2");
  const auto error = [&](const std::function<void(RecordOptions&)>& spoil) {
    RecordOptions options = Options();
    spoil(options);
    return ErrorOf([&] { Record(*loaded, Prompts(), options); });
  };
  EXPECT_THAT(error([](RecordOptions& o) { o.num_levels = 4; }), HasSubstr("num_levels is 4, expected 1 to 3"));
  EXPECT_THAT(error([](RecordOptions& o) { o.num_ranks = 256; }), HasSubstr("num_ranks is 256, expected 1 to 255"));
  EXPECT_THAT(error([](RecordOptions& o) { o.num_ranks = 0; }), HasSubstr("num_ranks is 0"));
  EXPECT_THAT(error([](RecordOptions& o) { o.side_by_side = 0; }), HasSubstr("side_by_side is 0"));
  EXPECT_THAT(error([](RecordOptions& o) { o.stop.max_tokens = 0; }), HasSubstr("max_tokens is 0, expected 1"));
  EXPECT_THAT(error([](RecordOptions& o) { o.sampling.top_p = 2; }), HasSubstr("SamplingOptions::top_p"));
  EXPECT_THAT(error([](RecordOptions& o) { o.stop.stop = {"x"}; }), HasSubstr("stop strings need a tokenizer"));
  EXPECT_THAT(error([](RecordOptions& o) { o.stop.stop = {""}; }), HasSubstr("a stop string is empty"));
  EXPECT_THAT(ErrorOf([&] { Record(*loaded, std::vector<Tokens>{{1}, {512}}, Options()); }), HasSubstr("is 512"));
}

TEST(RecordTest, DraftersThatRankNothingAreRefused) {
  EXPECT_THAT(ErrorOf([] { Record(*Load(""), Prompts(), Options()); }), HasSubstr("needs heads or a draft model"));
  EngineOptions two;
  two.model = test::Golden("base_mha");
  two.draft = test::Golden("hydra/mlp_k3_l2");
  two.more_drafts = {test::Golden("medusa/a_k3_l2")};
  two.load_tokenizer = false;
  EXPECT_THAT(ErrorOf([&] { Record(*load::LoadModel(two), Prompts(), Options()); }),
              HasSubstr("ranks no tokens, so there is nothing to record"));
}

TEST(RecordTest, RepliesThatDoNotFitTheBaseAreRefused) {
  const std::unique_ptr<load::LoadedModel> loaded = Load("hydra/mlp_k3_l2");
  const auto error = [&](const RecordedReply& reply) {
    return ErrorOf([&] { RecordRanks(RankContextOf(*loaded), std::span(&reply, 1), Options()); });
  };
  const Tokens some{1, 2, 3};
  EXPECT_EQ(error({.prompt_ids = some, .token_ids = some, .past_end = some}), "");
  EXPECT_THAT(error({.prompt_ids = {}, .token_ids = some, .past_end = {}}), HasSubstr("reply 0 has no prompt"));
  EXPECT_THAT(error({.prompt_ids = {1, -1}, .token_ids = some, .past_end = {}}),
              HasSubstr("token -1, expected 0 to 511"));
  EXPECT_THAT(error({.prompt_ids = some, .token_ids = {1, 512}, .past_end = {}}), HasSubstr("token 512"));
  EXPECT_THAT(error({.prompt_ids = some, .token_ids = some, .past_end = {999}}), HasSubstr("token 999"));
  EXPECT_THAT(error({.prompt_ids = Tokens(500, 1), .token_ids = Tokens(14, 1), .past_end = {}}),
              HasSubstr("514 tokens with its prompt, and the base model allows 512"));
}

}  // namespace
}  // namespace hydrant::eval::record_test
