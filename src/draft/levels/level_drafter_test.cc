// SPDX-License-Identifier: Apache-2.0
#include "draft/levels/level_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace hydrant::draft::level_drafter_test {
namespace {

constexpr int32_t kVocab = 8;  // the network's; the base's has more, which only pad it

// Notes which tokens its rows have.
class Notes : public LevelModel {
 public:
  explicit Notes(std::vector<int32_t>* seen) : seen_(seen) {}

  const char* name() const override { return "notes"; }
  std::vector<kv::LayerShape> KvLayers() const override { return {{.num_kv_heads = 1, .head_dim = 16}}; }
  uint64_t weight_bytes() const override { return 0; }
  uint64_t bytes_read() const override { return 0; }
  int64_t num_logits() const override { return kVocab; }
  int64_t vocab_size() const override { return kVocab; }
  void Run(const LevelPass& pass, Matrix& /*states*/) override {
    seen_->insert(seen_->end(), pass.rows->tokens().begin(), pass.rows->tokens().end());
    if (pass.output == nullptr) return;
    for (int64_t r = 0; r < pass.num_outputs; ++r) std::fill_n(pass.output->logits.row(r), kVocab, 0.0F);
  }

 private:
  std::vector<int32_t>* seen_;
};

TEST(LevelDrafterTest, TokensThatItsNetworkLacksStandForAnother) {
  std::vector<int32_t> seen;
  base::ThreadPool pool(1, false);
  kernels::Queue queue{.pool = &pool, .table = kernels::AvailableKernels().front()};
  const std::unique_ptr<Drafter> drafter = MakeLevelDrafter(std::make_unique<Notes>(&seen), 12, &queue);
  kv::BlockPool blocks({.layers = drafter->KvLayers()}, 4);
  kv::BlockTable table(&blocks);
  const std::unique_ptr<DraftState> state = drafter->NewState({});
  const std::vector<int32_t> prompt{1, 9}, path{10, 3, 11, 5};
  ASSERT_TRUE(table.Reserve(2));
  table.Append(2);
  const CommitInput commit{
      .state = state.get(), .kv = {.table = &table}, .tokens = prompt, .hidden = {}, .is_prompt = true};
  drafter->Commit(std::span(&commit, 1));
  Matrix logits;
  AlongInput along{.state = state.get(), .kv = {.table = &table}, .tokens = path, .logits = &logits};
  drafter->LogitsAlong(std::span(&along, 1));
  EXPECT_THAT(seen, testing::ElementsAre(1, 0, 0, 3, 0, 5));
  EXPECT_EQ(logits.rows(), 4);
}

}  // namespace
}  // namespace hydrant::draft::level_drafter_test
