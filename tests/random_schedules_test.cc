// SPDX-License-Identifier: Apache-2.0
// Requests that come and go at random on an engine with little room get the texts of one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/scheduled.h"

namespace hydrant::test::random_schedules_test {
namespace {

// Requests arrive, are cancelled and end at random, in engines with little room.
class RandomSchedule {
 public:
  explicit RandomSchedule(uint32_t seed) : random_(seed) {
    static const uint64_t block = BytesOfBlocks(Options(), 1);
    options_ = Options();
    options_.kv_memory = block * (6 + Below(5));
    options_.prefill_chunk = 1 + static_cast<int32_t>(Below(40));
    options_.max_running = 1 + static_cast<int32_t>(Below(6));
    options_.may_preempt = Below(4) > 0;
    if (Below(3) == 0) options_.tree = "auto";
  }

  void Play() {
    Engine engine(options_);
    std::vector<std::unique_ptr<Heard>> all;
    const size_t count = 3 + Below(6);
    while (all.size() < count || std::ranges::any_of(all, [](const auto& heard) { return !heard->result; })) {
      if (all.size() < count && Below(3) == 0) {
        all.push_back(std::make_unique<Heard>(Heard{.request = Request()}));
        Submit(engine, *all.back());
      }
      if (!all.empty() && Below(60) == 0) engine.Cancel(all[Below(all.size())]->id);
      engine.Step();
    }
    for (const auto& heard : all) Check(*heard);
  }
  int32_t num_preempted = 0, num_reused = 0, num_cancelled = 0;

 private:
  size_t Below(size_t n) { return random_() % n; }

  GenerationRequest Request() {
    const auto length = static_cast<int32_t>(1 + Below(90));
    GenerationRequest request = RequestOf(PromptOf(length, static_cast<int32_t>(Below(2))),
                                          1 + static_cast<int32_t>(Below(60)), Below(2) == 0 ? 0.0F : 0.8F);
    if (Below(2) == 0) request.cache_scope = "all";
    if (Below(4) == 0) request.lookup = {.max_tokens = 4, .min_match = 2};
    if (Below(5) == 0) request.use_drafter = false;
    if (Below(5) == 0) request.tree = "[[0],[0,0],[1],[2]]";
    return request;
  }

  void Check(const Heard& heard) {
    const GenerationResult& result = *heard.result;
    ASSERT_FALSE(result.error);
    Tokens expected = Alone(heard.request);
    if (result.finish_reason == FinishReason::kCancelled) {
      ++num_cancelled;
      expected.resize(result.token_ids.size());
    }
    EXPECT_EQ(result.token_ids, expected);
    num_preempted += result.num_preempted;
    num_reused += result.num_reused;
  }

  std::mt19937 random_;
  EngineOptions options_;
};

TEST(Scheduling, TwoHundredRandomSchedulesGiveTheTextsOfOneByOne) {
  int32_t preempted = 0, reused = 0, cancelled = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomSchedule schedule(seed);
    schedule.Play();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
    preempted += schedule.num_preempted;
    reused += schedule.num_reused;
    cancelled += schedule.num_cancelled;
  }
  EXPECT_GT(preempted, 50);
  EXPECT_GT(reused, 1000);
  EXPECT_GT(cancelled, 20);
}

}  // namespace
}  // namespace hydrant::test::random_schedules_test
