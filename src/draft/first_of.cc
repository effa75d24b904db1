// SPDX-License-Identifier: Apache-2.0
#include "draft/first_of.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hydrant::draft {
namespace {

struct BothStates : DraftState {
  std::unique_ptr<DraftState> first, second;
  // Committed rows that the second has yet to hear of.
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> hidden;  // [layers that the second wants] of [tokens * D]
  int64_t hidden_size = 0;

  void Keep(const CommitInput& input, std::span<const size_t> wanted) {
    tokens.insert(tokens.end(), input.tokens.begin(), input.tokens.end());
    hidden.resize(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const kernels::ConstRows& rows = input.hidden[wanted[i]];
      hidden_size = rows.cols;
      for (int64_t r = 0; r < rows.rows; ++r) hidden[i].insert(hidden[i].end(), rows.row(r), rows.row(r) + rows.cols);
    }
  }
  void Forget() {
    tokens.clear();
    for (std::vector<float>& rows : hidden) rows.clear();
  }
};

BothStates& StateOf(DraftState* state) { return *static_cast<BothStates*>(state); }

}  // namespace

FirstOf::FirstOf(Drafter* first, Drafter* second) : first_(first), second_(second), both_({first, second}) {}

int32_t FirstOf::MostNodes(const GenerationRequest& request) const {
  return std::max(first_->MostNodes(request), second_->MostNodes(request));
}

std::unique_ptr<DraftState> FirstOf::NewState(const GenerationRequest& request) const {
  auto state = std::make_unique<BothStates>();
  state->first = first_->NewState(request);
  state->second = second_->NewState(request);
  return state;
}

int32_t FirstOf::Resume(DraftState& state, const DraftKv& kv, int32_t length) const {
  BothStates& both = StateOf(&state);
  const int32_t second = second_->Resume(*both.second, KvOfSecond(kv), length);
  const int32_t first = first_->Resume(*both.first, kv, second);
  return first == second ? first : second_->Resume(*both.second, KvOfSecond(kv), first);
}

void FirstOf::Commit(std::span<const CommitInput> inputs) {
  const auto hand_on = [&](Drafter* drafter, std::span<const size_t> wants, auto&& input_for) {
    commits_.clear();
    hidden_.clear();
    hidden_.reserve(inputs.size() * wants.size());  // commits_ point into it
    for (const CommitInput& input : inputs) {
      CommitInput own = input;
      if (!input_for(StateOf(input.state), own)) continue;
      const size_t begin = hidden_.size();
      for (const size_t place : wants) hidden_.push_back(input.hidden[place]);
      own.hidden = std::span(hidden_).subspan(begin);
      commits_.push_back(own);
    }
    if (!commits_.empty()) drafter->Commit(commits_);
  };
  hand_on(first_, both_.WantsOf(0), [](BothStates& state, CommitInput& input) {
    input.state = state.first.get();
    return true;
  });
  hand_on(second_, both_.WantsOf(1), [&](BothStates& state, CommitInput& input) {
    if (!input.is_prompt) {
      state.Keep(input, both_.WantsOf(1));
      return false;
    }
    HYDRANT_CHECK(state.tokens.empty());
    input.state = state.second.get();
    input.kv = KvOfSecond(input.kv);
    return true;
  });
}

void FirstOf::Propose(std::span<ProposeInput> inputs) {
  asked_.assign(inputs.begin(), inputs.end());
  for (ProposeInput& input : asked_) input.state = StateOf(input.state).first.get();
  first_->Propose(asked_);
  HandOver(inputs);
  asked_.clear();
  for (const ProposeInput& input : inputs) {
    if (input.tree->topology.num_nodes() > 1) continue;
    asked_.push_back(input);
    asked_.back().state = StateOf(input.state).second.get();
    asked_.back().kv = KvOfSecond(input.kv);
  }
  if (!asked_.empty()) second_->Propose(asked_);
}

// Hands the rows that wait to the second drafter.
void FirstOf::HandOver(std::span<ProposeInput> inputs) {
  commits_.clear();
  hidden_.clear();
  hidden_.reserve(inputs.size() * both_.WantsOf(1).size());  // commits_ point into it
  std::vector<BothStates*> handed;
  for (const ProposeInput& input : inputs) {
    BothStates& state = StateOf(input.state);
    const auto count = static_cast<int64_t>(state.tokens.size());
    const bool is_asked = input.tree->topology.num_nodes() == 1 && second_->MayDraft(input);
    if (count == 0 || (!is_asked && count < kMostWaiting)) continue;
    const size_t begin = hidden_.size();
    for (const std::vector<float>& rows : state.hidden) {
      hidden_.emplace_back(rows.data(), count, state.hidden_size, state.hidden_size);
    }
    commits_.push_back({.state = state.second.get(),
                        .kv = KvOfSecond(input.kv),
                        .tokens = state.tokens,
                        .hidden = std::span(hidden_).subspan(begin)});
    handed.push_back(&state);
  }
  if (!commits_.empty()) second_->Commit(commits_);
  for (BothStates* state : handed) state->Forget();
}

}  // namespace hydrant::draft
