// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace hydrant::engine::scheduler_test {
namespace {

RequestState Waiting(RequestId id, int32_t prompt, int32_t most = 100) {
  return {.id = id, .num_left = prompt, .tree_rows = 4, .most_slots = prompt + most};
}

RequestState Decoding(RequestId id, int32_t length, int64_t last_step = 0) {
  return {.id = id,
          .is_running = true,
          .num_left = 0,
          .tree_rows = 4,
          .length = length,
          .num_blocks = BlocksOf(length),
          .num_own = BlocksOf(length),
          .most_slots = length + 64,
          .last_step = last_step};
}

TEST(SchedulerTest, PromptsAndTreesShareAStep) {
  const RequestState requests[] = {Decoding(1, 40), Decoding(2, 40), Waiting(3, 100)};
  const Plan plan = Schedule(requests, {.prompt_rows = 60, .num_blocks = 100, .num_free = 50});
  EXPECT_EQ(plan.admitted, (std::vector<RequestId>{3}));
  EXPECT_EQ(plan.work,
            (std::vector<Work>{{.id = 1, .tree_rows = 4}, {.id = 2, .tree_rows = 4}, {.id = 3, .prompt_rows = 60}}));
}

TEST(SchedulerTest, WhoWaitedLongestComesFirst) {
  const RequestState requests[] = {Decoding(1, 40, 9), Decoding(2, 40, 7), Decoding(3, 40, 8)};
  const Plan plan = Schedule(requests, {.max_rows = 8, .num_blocks = 100, .num_free = 50});
  EXPECT_EQ(plan.work, (std::vector<Work>{{.id = 2, .tree_rows = 4}, {.id = 3, .tree_rows = 4}}));
}

TEST(SchedulerTest, ATreeLargerThanAStepGetsWhatAStepHas) {
  RequestState request = Decoding(1, 40);
  request.tree_rows = 100;
  const Plan plan = Schedule(std::span(&request, 1), {.max_rows = 64, .num_blocks = 100, .num_free = 50});
  EXPECT_EQ(plan.work, (std::vector<Work>{{.id = 1, .tree_rows = 64}}));
}

TEST(SchedulerTest, WhereBlocksAreShortTheYoungestGivesItsBack) {
  const RequestState requests[] = {Decoding(1, 64), Decoding(2, 64), Decoding(3, 64)};
  const Plan plan = Schedule(requests, {.num_blocks = 6, .num_free = 0});
  EXPECT_EQ(plan.preempted, (std::vector<RequestId>{3}));
  EXPECT_EQ(plan.work, (std::vector<Work>{{.id = 1, .tree_rows = 4}, {.id = 2, .tree_rows = 4}}));
}

// Blocks that others use, too, are not free when one of their users goes; and copies need room.
TEST(SchedulerTest, ASharedBlockIsNotGivenBackByOneOfItsUsers) {
  RequestState requests[] = {Decoding(1, 64), Decoding(2, 64), Decoding(3, 64)};
  requests[1].num_own = requests[2].num_own = 0;
  const Plan plan = Schedule(requests, {.num_blocks = 4, .num_free = 0});
  EXPECT_EQ(plan.preempted, (std::vector<RequestId>{3, 2}));
  RequestState copies[] = {Decoding(1, 70), Decoding(2, 70)};
  copies[1].num_copies = 1;
  EXPECT_EQ(Schedule(copies, {.num_blocks = 6, .num_free = 0}).preempted, (std::vector<RequestId>{2}));
  EXPECT_TRUE(Schedule(copies, {.num_blocks = 7, .num_free = 1}).preempted.empty());
}

TEST(SchedulerTest, OrNobodyIsAdmittedWhoCouldNotFinish) {
  const RequestState requests[] = {Decoding(1, 64), Waiting(2, 10, 100)};  // the first may come to 4 blocks
  const SchedulerLimits limits{.num_blocks = 7, .num_free = 5, .may_preempt = false};
  EXPECT_TRUE(Schedule(requests, limits).admitted.empty());
  SchedulerLimits larger = limits;
  larger.num_blocks = 8;
  larger.num_free = 6;
  EXPECT_EQ(Schedule(requests, larger).admitted, (std::vector<RequestId>{2}));
}

TEST(SchedulerTest, NobodyOvertakesButOneThatIsHeld) {
  RequestState held = Waiting(2, 10);
  held.is_held = true;
  const RequestState requests[] = {Decoding(1, 64), held, Waiting(3, 20), Waiting(4, 1000), Waiting(5, 10)};
  const Plan plan = Schedule(requests, {.num_blocks = 25, .num_free = 23});
  EXPECT_EQ(plan.admitted, (std::vector<RequestId>{3}));
}

// Random loads, played through with a plain model of what steps do to requests.
class Load {
 public:
  Load(uint32_t seed, bool may_preempt) : random_(seed) {
    limits_.max_rows = 8 + static_cast<int32_t>(random_() % 64);
    limits_.prompt_rows = 1 + static_cast<int32_t>(random_() % static_cast<uint32_t>(limits_.max_rows));
    limits_.max_running = 1 + static_cast<int32_t>(random_() % 10);
    limits_.num_blocks = 12 + static_cast<int32_t>(random_() % 40);
    limits_.may_preempt = may_preempt;
  }

  void Play() {
    for (int step = 0; step < 30000 && (arrivals_ < 40 || !requests_.empty()); ++step) {
      if (arrivals_ < 40 && random_() % 3 == 0) Arrive();
      Step(step);
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(requests_.empty()) << "some never ended";
  }
  int num_preempted() const { return num_preempted_; }

 private:
  void Arrive() {
    const auto prompt = static_cast<int32_t>(1 + random_() % 150), reply = static_cast<int32_t>(1 + random_() % 100);
    RequestState request{.id = ++arrivals_, .num_left = prompt, .tree_rows = 1 + static_cast<int32_t>(random_() % 20)};
    request.tree_rows = std::min(request.tree_rows, limits_.max_rows);
    request.most_slots = prompt + reply + request.tree_rows;
    if (BlocksOf(request.most_slots) > limits_.num_blocks) return;  // Submit refuses it
    end_[request.id] = prompt + reply;
    requests_.push_back(request);
  }

  void Step(int step) {
    int32_t held = 0;
    for (const RequestState& request : requests_) held += request.num_blocks;
    limits_.num_free = limits_.num_blocks - held;
    const Plan plan = Schedule(requests_, limits_);
    if (!requests_.empty()) {
      EXPECT_FALSE(plan.work.empty());
    }
    if (!limits_.may_preempt) {
      EXPECT_TRUE(plan.preempted.empty());
    }
    for (const RequestId id : plan.preempted) {
      RequestState& request = Of(id);
      EXPECT_TRUE(request.is_running);
      EXPECT_NE(id, requests_.front().id) << "the oldest is never preempted";
      request.num_left += request.length;
      request.length = request.num_blocks = request.num_own = 0;
      request.is_running = false;
      ++num_preempted_;
    }
    for (const RequestId id : plan.admitted) {
      Of(id).is_running = true;
      Of(id).last_step = step;
    }
    CheckOrder();
    Work(plan, step);
    CheckTurns(step);
    std::erase_if(requests_, [&](const RequestState& request) { return request.length >= end_[request.id]; });
  }

  RequestState& Of(RequestId id) { return *std::ranges::find(requests_, id, &RequestState::id); }

  // Who waits came after all who run, but those that were preempted.
  void CheckOrder() {
    const auto first_waiting =
        std::ranges::find_if(requests_, [](const RequestState& request) { return !request.is_running; });
    for (auto at = first_waiting; at != requests_.end(); ++at) EXPECT_FALSE(at->is_running);
  }

  void Work(const Plan& plan, int step) {
    int32_t rows = 0, prompt_rows = 0, blocks = 0;
    for (const engine::Work& work : plan.work) {
      RequestState& request = Of(work.id);
      EXPECT_TRUE(request.is_running);
      rows += work.prompt_rows + work.tree_rows;
      prompt_rows += work.prompt_rows;
      EXPECT_LE(work.prompt_rows, request.num_left);
      EXPECT_EQ(work.tree_rows > 0, request.num_left == 0);
      const int32_t used = work.prompt_rows + work.tree_rows;
      request.num_own = request.num_blocks = std::max(request.num_blocks, BlocksOf(request.length + used));
      request.length += work.prompt_rows > 0 ? used : 1 + static_cast<int32_t>(random_() % 3);
      request.length = std::min(request.length, std::max(end_[work.id], work.prompt_rows));
      request.num_left -= work.prompt_rows;
      request.last_step = step;
    }
    for (const RequestState& request : requests_) blocks += request.num_blocks;
    EXPECT_LE(rows, limits_.max_rows);
    EXPECT_LE(prompt_rows, limits_.prompt_rows);
    EXPECT_LE(blocks, limits_.num_blocks);
    EXPECT_LE(std::ranges::count_if(requests_, &RequestState::is_running), limits_.max_running);
  }

  // Whoever runs had work in as many steps as requests run at most.
  void CheckTurns(int step) {
    for (const RequestState& request : requests_) {
      if (!request.is_running) continue;
      EXPECT_LE(step - request.last_step, limits_.max_running) << request.id;
    }
  }

  std::mt19937 random_;
  SchedulerLimits limits_;
  std::vector<RequestState> requests_;
  std::map<RequestId, int32_t> end_;
  RequestId arrivals_ = 0;
  int num_preempted_ = 0;
};

TEST(SchedulerTest, EveryLoadEndsWithinItsMeans) {
  int preempted = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Load load(seed, seed % 3 != 0);
    load.Play();
    if (HasFailure()) return;
    preempted += load.num_preempted();
  }
  EXPECT_GT(preempted, 100);
}

}  // namespace
}  // namespace hydrant::engine::scheduler_test
