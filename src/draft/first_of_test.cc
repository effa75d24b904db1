// SPDX-License-Identifier: Apache-2.0
#include "draft/first_of.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "draft/lookup_drafter.h"

namespace hydrant::draft::first_of_test {
namespace {

struct Log : DraftState {
  std::vector<int32_t> tokens;  // committed
  std::vector<float> hidden;    // their rows of layer 3, first column
  std::vector<size_t> commits;  // how many tokens came together
  std::vector<int64_t> kv_layers;
};

// Drafts one node, the root's token + 1, where it has a shape; remembers what it is told.
class Recorder : public Drafter {
 public:
  explicit Recorder(std::vector<int32_t> wanted) : wanted_(std::move(wanted)) {}
  const char* name() const override { return "recorder"; }
  int32_t max_depth() const override { return 1; }
  std::vector<int32_t> WantedLayers() const override { return wanted_; }
  std::vector<kv::LayerShape> KvLayers() const override { return {{.num_kv_heads = 1, .head_dim = 2}}; }
  bool FillsShapes() const override { return true; }
  std::unique_ptr<DraftState> NewState(const GenerationRequest&) const override {
    auto log = std::make_unique<Log>();
    logs.push_back(log.get());
    return log;
  }
  void Commit(std::span<const CommitInput> inputs) override {
    for (const CommitInput& input : inputs) {
      Log& log = *static_cast<Log*>(input.state);
      log.tokens.insert(log.tokens.end(), input.tokens.begin(), input.tokens.end());
      log.commits.push_back(input.tokens.size());
      log.kv_layers.push_back(input.kv.first_layer);
      ASSERT_EQ(input.hidden.size(), wanted_.size());
      const kernels::ConstRows& rows = input.hidden.back();
      ASSERT_EQ(rows.rows, static_cast<int64_t>(input.tokens.size()));
      for (int64_t r = 0; r < rows.rows; ++r) log.hidden.push_back(rows.row(r)[0]);
    }
  }
  void Propose(std::span<ProposeInput> inputs) override {
    for (ProposeInput& input : inputs) {
      input.tree->Reset(input.output.back());
      if (!MayDraft(input)) continue;
      input.tree->topology = Chains().Of(1);
      input.tree->tokens.push_back(input.output.back() + 1);
    }
  }

  mutable std::vector<Log*> logs;

 private:
  std::vector<int32_t> wanted_;
};

// One sequence whose row for token t is t + 100 * layer.
class Text {
 public:
  Text(FirstOf& drafter, GenerationRequest request)
      : drafter_(&drafter), request_(std::move(request)), state_(drafter.NewState(request_)) {}

  void Commit(const std::vector<int32_t>& tokens, bool is_prompt) {
    std::vector<Matrix> matrices;
    std::vector<kernels::ConstRows> rows;
    for (const int32_t layer : drafter_->WantedLayers()) {
      Matrix& matrix = matrices.emplace_back(static_cast<int64_t>(tokens.size()), 2);
      for (size_t i = 0; i < tokens.size(); ++i) {
        matrix.row(static_cast<int64_t>(i))[0] = static_cast<float>(tokens[i] + 100 * layer);
      }
    }
    for (const Matrix& matrix : matrices) rows.emplace_back(matrix);
    const CommitInput input{
        .state = state_.get(), .kv = {.first_layer = 5}, .tokens = tokens, .hidden = rows, .is_prompt = is_prompt};
    drafter_->Commit(std::span(&input, 1));
  }
  tree::TokenTree Propose(const std::vector<int32_t>& output, StaticTree* shape) {
    tree::TokenTree tree;
    ProposeInput input;
    input.state = state_.get();
    input.kv.first_layer = 5;
    input.prompt = request_.prompt_ids;
    input.output = output;
    input.budget = {.max_nodes = 8, .max_depth = 8};
    input.shape = shape;
    input.tree = &tree;
    drafter_->Propose(std::span(&input, 1));
    return tree;
  }

 private:
  FirstOf* drafter_;
  GenerationRequest request_;
  std::unique_ptr<DraftState> state_;
};

struct Fixture : testing::Test {
  LookupDrafter lookup;
  Recorder heads{{-1, 3}};
  FirstOf both{&lookup, &heads};
  StaticTree chain{Chains().Of(1)}, nothing{tree::Topology()};
  GenerationRequest request{.prompt_ids = {1, 2, 3, 4, 1, 2}, .sampling = {}, .accept = {}, .stop = {}, .lookup = {}};
};
using FirstOfTest = Fixture;

TEST_F(FirstOfTest, TheSecondIsAskedWhereTheFirstFindsNothing) {
  request.lookup = {.max_tokens = 3, .min_match = 2};
  Text text(both, request);
  const tree::TokenTree found = text.Propose({3}, &chain);  // .. 2 3, as before: 4
  EXPECT_EQ(found.source, DraftSource::kLookup);
  EXPECT_EQ(found.tokens, (std::vector<int32_t>{3, 4, 1, 2}));
  const tree::TokenTree drafted = text.Propose({3, 9}, &chain);
  EXPECT_NE(drafted.source, DraftSource::kLookup);
  EXPECT_EQ(drafted.tokens, (std::vector<int32_t>{9, 10}));
  EXPECT_EQ(text.Propose({3, 9, 7}, &nothing).tokens, (std::vector<int32_t>{7}));
}

// Prompts come at once; what steps commit waits until the second is asked, in order and whole.
TEST_F(FirstOfTest, WhatStepsCommitWaitsUntilTheSecondIsAsked) {
  Text text(both, request);
  text.Commit({1, 2, 3, 4}, true);
  text.Commit({1, 2}, true);
  const Log& log = *heads.logs.front();
  EXPECT_EQ(log.commits, (std::vector<size_t>{4, 2}));
  text.Propose({5}, &nothing);
  text.Commit({5, 6}, false);
  text.Propose({5, 6, 7}, &nothing);
  text.Commit({7}, false);
  EXPECT_EQ(log.tokens.size(), 6U);
  text.Propose({5, 6, 7, 8}, &chain);
  EXPECT_EQ(log.commits, (std::vector<size_t>{4, 2, 3}));
  EXPECT_EQ(log.tokens, (std::vector<int32_t>{1, 2, 3, 4, 1, 2, 5, 6, 7}));
  EXPECT_EQ(log.hidden.back(), 307);
  EXPECT_EQ(log.kv_layers, (std::vector<int64_t>{5, 5, 5}));  // the first keeps none
  text.Propose({5, 6, 7, 8}, &chain);
  EXPECT_EQ(log.commits.size(), 3U);
}

TEST_F(FirstOfTest, NotForEver) {
  Text text(both, request);
  const Log& log = *heads.logs.front();
  for (int32_t i = 0; i < FirstOf::kMostWaiting; ++i) {
    text.Propose({i}, &nothing);
    EXPECT_TRUE(log.tokens.empty());
    text.Commit({i}, false);
  }
  text.Propose({1}, &nothing);
  EXPECT_EQ(log.commits, (std::vector<size_t>{FirstOf::kMostWaiting}));
}

TEST(TwoDraftersTest, ShareTheLayersThatBothWantAndKeepTheirOwnKeysAndValues) {
  Recorder first{{3}}, second{{0, 3}};
  FirstOf both(&first, &second);
  EXPECT_EQ(both.WantedLayers(), (std::vector<int32_t>{3, 0}));
  EXPECT_EQ(both.KvLayers().size(), 2U);
  Text text(both, {});
  text.Commit({4}, true);
  EXPECT_EQ(first.logs.front()->hidden, (std::vector<float>{304}));
  EXPECT_EQ(second.logs.front()->hidden, (std::vector<float>{304}));
  EXPECT_EQ(first.logs.front()->kv_layers, (std::vector<int64_t>{5}));
  EXPECT_EQ(second.logs.front()->kv_layers, (std::vector<int64_t>{6}));
}

}  // namespace
}  // namespace hydrant::draft::first_of_test
