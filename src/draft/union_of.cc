// SPDX-License-Identifier: Apache-2.0
#include "draft/union_of.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tree/merge.h"

namespace hydrant::draft {
namespace {

struct PartState {
  std::unique_ptr<DraftState> state;
  int32_t drafted_length = 0;  // positions of which it has its own keys and values
  tree::TokenTree tree;
};

struct UnionState : DraftState {
  mutable std::vector<PartState> parts;
};

std::vector<PartState>& PartsOf(DraftState* state) { return static_cast<UnionState*>(state)->parts; }

std::vector<Drafter*> Pointers(const std::vector<std::unique_ptr<Drafter>>& drafters) {
  std::vector<Drafter*> pointers;
  for (const auto& drafter : drafters) pointers.push_back(drafter.get());
  return pointers;
}

}  // namespace

UnionOf::UnionOf(std::vector<std::unique_ptr<Drafter>> drafters)
    : drafters_(std::move(drafters)), parts_(Pointers(drafters_)) {
  for (const auto& drafter : drafters_) name_ += (name_.empty() ? "" : " + ") + std::string(drafter->name());
}

int32_t UnionOf::num_heads() const {
  int32_t heads = 0;
  for (const auto& drafter : drafters_) heads = std::max(heads, drafter->num_heads());
  return heads;
}

int32_t UnionOf::usual_depth() const {
  int32_t depth = 0;
  for (const auto& drafter : drafters_) depth = std::max(depth, drafter->usual_depth());
  return depth;
}

bool UnionOf::GrowsTrees() const {
  return std::ranges::all_of(drafters_, [](const auto& drafter) { return drafter->GrowsTrees(); });
}

std::unique_ptr<DraftState> UnionOf::NewState(const GenerationRequest& request) const {
  auto state = std::make_unique<UnionState>();
  for (const auto& drafter : drafters_) state->parts.push_back({.state = drafter->NewState(request), .tree = {}});
  return state;
}

// All must start from the same position. One that wants to start earlier takes the others back.
int32_t UnionOf::Resume(DraftState& state, const DraftKv& kv, int32_t length) const {
  std::vector<PartState>& parts = PartsOf(&state);
  std::vector<int32_t> starts(parts.size(), -1);
  const auto resume = [&](size_t p, int32_t from) {
    parts[p].drafted_length = std::min(from, kv.table->drafted_length());
    DraftKv own = parts_.KvOf(p, kv);
    own.own_drafted_length = &parts[p].drafted_length;
    starts[p] = drafters_[p]->Resume(*parts[p].state, own, from);
  };
  for (size_t p = 0; p < parts.size(); ++p) resume(p, length);
  int32_t start = std::ranges::min(starts);
  for (size_t p = 0; p < parts.size();) {
    if (starts[p] == start) {
      ++p;
      continue;
    }
    resume(p, start);
    if (starts[p] == start) continue;
    start = starts[p];
    p = 0;
  }
  for (PartState& part : parts) part.drafted_length = std::min(part.drafted_length, start);
  return start;
}

// The sequence's blocks hold what all of them have.
void UnionOf::Settle(DraftState& state, const DraftKv& kv) const {
  int32_t least = kv.table == nullptr ? 0 : kv.table->length();
  bool has_kv = false;
  const std::vector<PartState>& parts = PartsOf(&state);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!parts_.HasKv(p)) continue;
    has_kv = true;
    least = std::min(least, parts[p].drafted_length);
  }
  if (has_kv && least > kv.drafted_length()) kv.AppendDrafted(least - kv.drafted_length());
}

void UnionOf::Commit(std::span<const CommitInput> inputs) {
  for (size_t p = 0; p < parts_.size(); ++p) {
    commits_.clear();
    hidden_.clear();
    hidden_.reserve(inputs.size() * parts_.WantsOf(p).size());  // commits_ point into it
    for (const CommitInput& input : inputs) {
      PartState& part = PartsOf(input.state)[p];
      CommitInput own = input;
      own.state = part.state.get();
      own.kv = parts_.KvOf(p, input.kv);
      own.kv.own_drafted_length = &part.drafted_length;
      const size_t begin = hidden_.size();
      for (const size_t place : parts_.WantsOf(p)) hidden_.push_back(input.hidden[place]);
      own.hidden = std::span(hidden_).subspan(begin);
      commits_.push_back(own);
    }
    drafters_[p]->Commit(commits_);
  }
  for (const CommitInput& input : inputs) Settle(*input.state, input.kv);
}

void UnionOf::Propose(std::span<ProposeInput> inputs) {
  for (size_t p = 0; p < parts_.size(); ++p) ProposePart(p, inputs);
  std::vector<const tree::TokenTree*> trees(parts_.size());
  for (ProposeInput& input : inputs) {
    std::vector<PartState>& parts = PartsOf(input.state);
    for (size_t p = 0; p < parts.size(); ++p) trees[p] = &parts[p].tree;
    tree::Merge(trees, *input.tree);
    HYDRANT_CHECK(input.tree->topology.num_nodes() - 1 <= input.budget.max_nodes);
    Settle(*input.state, input.kv);
  }
}

void UnionOf::ProposePart(size_t part, std::span<ProposeInput> inputs) {
  const auto count = static_cast<int32_t>(parts_.size()), p = static_cast<int32_t>(part);
  asked_.assign(inputs.begin(), inputs.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    PartState& own = PartsOf(inputs[i].state)[part];
    ProposeInput& input = asked_[i];
    input.state = own.state.get();
    input.tree = &own.tree;
    input.kv = parts_.KvOf(part, input.kv);
    input.kv.own_drafted_length = &own.drafted_length;
    input.budget.max_nodes = (input.budget.max_nodes + count - 1 - p) / count;  // the first ones get what is left over
    input.budget.max_depth = std::min(input.budget.max_depth, drafters_[part]->max_depth());
  }
  drafters_[part]->Propose(asked_);
}

}  // namespace hydrant::draft
