// SPDX-License-Identifier: Apache-2.0
// The promise over all kinds of drafters and all ways to draft with them: alone, and in batches of other ways, greedy,
// sampled and penalised, on every CPU target, in chunks and short of room, a text is plain decoding's. And since a
// draft hangs on its own text alone, so are the drafts of each step those of the request by itself: this is what shows
// a drafter that has lost or mixed up what it knew.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draft/heads/head_kind.h"
#include "tests/drafting_kinds.h"

namespace hydrant::test::lossless_kinds_test {
namespace {

struct Reply {
  GenerationResult result;
  std::vector<int32_t> drafts;  // the trees of all steps: parents and tokens
};

// All of them at once.
std::vector<Reply> RunTogether(Engine& engine, std::span<const GenerationRequest> requests) {
  std::vector<Reply> replies(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Reply& reply = replies[i];
    const auto keep = [&reply](const Emission& emission) {
      if (emission.step == nullptr || emission.token_ids.empty()) return true;  // between the parts of a prompt
      for (const auto part : {emission.step->parents, emission.step->tokens}) {
        reply.drafts.insert(reply.drafts.end(), part.begin(), part.end());
      }
      return true;
    };
    engine.Submit(requests[i],
                  {.on_emit = keep, .on_done = [&reply](GenerationResult done) { reply.result = std::move(done); }});
  }
  while (engine.Step()) {
  }
  return replies;
}

// In batches of these sizes in turn.
std::vector<Reply> RunInBatches(Engine& engine, std::span<const GenerationRequest> requests,
                                std::span<const size_t> sizes) {
  std::vector<Reply> replies;
  for (size_t begin = 0, turn = 0; begin < requests.size(); begin = replies.size()) {
    const size_t size = std::min(sizes[turn++ % sizes.size()], requests.size() - begin);
    for (Reply& reply : RunTogether(engine, requests.subspan(begin, size))) replies.push_back(std::move(reply));
  }
  return replies;
}
std::vector<Reply> RunAlone(Engine& engine, std::span<const GenerationRequest> requests) {
  return RunInBatches(engine, requests, std::vector<size_t>{1});
}

// Auto chooses trees by measured times.
bool DraftsHangOnTextsAlone(const GenerationRequest& request) { return request.tree != "auto"; }

void ExpectSame(const GenerationRequest& request, const Reply& reply, const Reply& alone, const Reply& plain) {
  EXPECT_EQ(reply.result.error, nullptr);
  EXPECT_EQ(reply.result.token_ids, plain.result.token_ids);
  EXPECT_EQ(reply.result.finish_reason, plain.result.finish_reason);
  if (DraftsHangOnTextsAlone(request)) {
    EXPECT_EQ(reply.result.num_emitted, alone.result.num_emitted);
    EXPECT_EQ(reply.drafts, alone.drafts);
  }
}

std::vector<GenerationRequest> Plainly(std::vector<GenerationRequest> requests) {
  for (GenerationRequest& request : requests) request.use_drafter = false;
  return requests;
}

class LosslessKinds : public testing::TestWithParam<DraftingKind> {
 protected:
  void SetUp() override {
    if (!IsThere(GetParam())) GTEST_SKIP() << "skipped: the reference cases are not beside the checkout";
    options_ = OptionsOf(GetParam());
    ways_ = WaysToDraft(GetParam(), Engine(options_).info());
  }

  // Every way with every setting of sampling, neighbours with different ones.
  std::vector<GenerationRequest> Requests() const {
    const std::vector<Setting> settings = EverySetting();
    std::vector<GenerationRequest> requests;
    for (size_t round = 0; round < settings.size(); ++round) {
      for (size_t w = 0; w < ways_.size(); ++w) {
        GenerationRequest& request = requests.emplace_back(ways_[w]);
        request.prompt_ids = Prompt();
        request.prompt_ids.resize(Prompt().size() - requests.size() % 5);
        request.sampling = settings[(round + w) % settings.size()].sampling;
        request.stop = {.max_tokens = 20 + static_cast<int32_t>(3 * w % 8), .ignore_eos = true, .stop = {}};
      }
    }
    return requests;
  }

  // Every way at least once, behind so many tokens that all have in common.
  std::vector<GenerationRequest> LongRequests(int32_t common, int32_t max_tokens) const {
    std::vector<GenerationRequest> requests = Requests();
    std::ranges::rotate(requests, requests.begin() + 1);  // plain decoding leaves no rows of heads to share
    requests.resize(std::max(ways_.size(), size_t{9}));
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt_ids.clear();
      for (int32_t t = 0; t < common; ++t) requests[i].prompt_ids.push_back(3 + (t * 37) % 500);
      requests[i].prompt_ids.push_back(static_cast<int32_t>(10 + i));
      requests[i].stop.max_tokens = max_tokens;
    }
    return requests;
  }

  // Accepted drafts in all, and by each way where the heads have learned from this base.
  void ExpectAccepted(std::span<const Reply> replies) const {
    int64_t all = 0;
    for (size_t w = 0; w < ways_.size(); ++w) {
      int64_t accepted = 0;
      for (size_t i = w; i < replies.size(); i += ways_.size()) accepted += replies[i].result.num_accepted();
      if (IsTrained(GetParam()) && ways_[w].use_drafter && DraftsHangOnTextsAlone(ways_[w])) {
        EXPECT_GT(accepted, 0) << "way " << w;
      }
      all += accepted;
    }
    EXPECT_GT(all, 0);
  }

  EngineOptions options_;
  std::vector<GenerationRequest> ways_;
};

// What floats give alone on one target, they give on all of them (docs/algorithms/order_of_additions.md).
TEST_P(LosslessKinds, InBatchesOnEveryTarget) {
  const std::vector<GenerationRequest> all = Requests();
  std::vector<Reply> plain, alone;
  const std::vector<std::string> targets = TargetsForFloats();
  options_.threads = 1;
  for (const std::string& target : std::views::reverse(targets)) {
    options_.cpu_target = target;
    if (alone.empty()) {
      Engine engine(options_);
      plain = RunAlone(engine, Plainly(all));
      alone = RunAlone(engine, all);
      ExpectAccepted(alone);
    }
    options_.prefill_chunk = 5;
    // The slow twin has every way once at least, and each size of batches.
    const bool is_slow = target == "portable";
    const auto requests = std::span(all).first(is_slow ? 12 : all.size());
    std::vector<std::vector<size_t>> batches = {{3}, {8}, {1}};
    if (is_slow) batches = {{3, 8, 1}};
    for (const std::vector<size_t>& sizes : batches) {
      options_.threads = sizes[0] == 8 ? 2 : 1;
      Engine engine(options_);
      const std::vector<Reply> replies = RunInBatches(engine, requests, sizes);
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(target + " in batches of " + std::to_string(sizes[0]) + ", request " + std::to_string(i));
        ExpectSame(requests[i], replies[i], alone[i], plain[i]);
      }
    }
  }
}

// In a KV cache that is too small for all, with beginnings that requests share. Texts part where a block ends: a
// network whose rows read the next token must not share that block.
TEST_P(LosslessKinds, WithSharedBeginningsUnderPressure) {
  Engine roomy(options_);
  options_.kv_memory = roomy.info().kv_memory / static_cast<uint64_t>(roomy.info().kv_positions / 32) * 12;
  options_.prefill_chunk = 7;
  Engine engine(options_);
  std::vector<GenerationRequest> requests = LongRequests(64, 100);
  const std::vector<Reply> plain = RunAlone(roomy, Plainly(requests)), alone = RunAlone(roomy, requests);
  for (GenerationRequest& request : requests) request.cache_scope = "all";
  const std::vector<Reply> together = RunTogether(engine, requests);
  int32_t preempted = 0, reused = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(requests[i], together[i], alone[i], plain[i]);
    preempted += together[i].result.num_preempted;
    reused += together[i].result.num_reused;
  }
  EXPECT_GT(preempted, 0);
  EXPECT_GT(reused, 0);
}

// Texts that part where a block ends, which a network whose rows read the next token does not share. Then the next turn
// of a chat, which begins with blocks of a reply, of which the drafter may have been told late.
TEST_P(LosslessKinds, BehindTextsInTheCache) {
  Engine fresh(options_), engine(options_);
  const auto expect_same = [&](std::vector<GenerationRequest> requests) {
    const std::vector<Reply> plain = RunAlone(fresh, Plainly(requests)), alone = RunAlone(fresh, requests);
    for (GenerationRequest& request : requests) request.cache_scope = "all";
    std::vector<Reply> replies = RunAlone(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSame(requests[i], replies[i], alone[i], plain[i]);
    }
    return replies;
  };
  EXPECT_GE(expect_same(LongRequests(64, 8)).back().result.num_reused, 32);
  std::vector<GenerationRequest> requests = LongRequests(64, 40);
  const std::vector<Reply> first = expect_same(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t>& said = first[i].result.token_ids;
    requests[i].prompt_ids.insert(requests[i].prompt_ids.end(), said.begin(), said.end());
    for (const int32_t token : {5, 9, 11}) requests[i].prompt_ids.push_back(token);
    requests[i].stop.max_tokens = 8;
  }
  // The prompts' blocks, and that of the reply where the drafter was told of all of it.
  for (const Reply& next_turn : expect_same(requests)) EXPECT_GE(next_turn.result.num_reused, 64);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LosslessKinds, testing::ValuesIn(DraftingKinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(LosslessKindsTable, HasEveryKindOfHeads) {
  std::map<std::string, int> names;
  for (const DraftingKind& kind : DraftingKinds()) {
    if (IsThere(kind)) ++names[Engine(OptionsOf(kind)).info().drafter];
  }
  for (const draft::HeadKind* kind : draft::HeadKinds()) {
    EXPECT_TRUE(std::ranges::any_of(names, [&](const auto& entry) { return entry.first.starts_with(kind->name); }))
        << kind->name;
  }
}

}  // namespace
}  // namespace hydrant::test::lossless_kinds_test
