// SPDX-License-Identifier: Apache-2.0
#include "draft/lookup_drafter.h"

#include <algorithm>
#include <optional>

#include "draft/lookup.h"
#include "draft/prediction.h"

namespace hydrant::draft {
namespace {

// Tokens that one step may draft of a prediction: rows cost time, and few steps accept more.
constexpr int32_t kMostPredicted = 32;

struct TextState : DraftState {
  std::optional<TokenLookup> lookup;  // none: the request asks for none
  LookupOptions options;
  int32_t max_reply = 0;  // tokens
  std::optional<Prediction> prediction;
  std::span<const int32_t> given;         // of the request, which outlives this
  size_t num_prompt = 0, num_output = 0;  // tokens that lookup and prediction know

  void TakeIn(const ProposeInput& input) {
    const std::span<const int32_t> prompt = input.prompt.subspan(num_prompt), output = input.output.subspan(num_output);
    num_prompt = input.prompt.size();
    num_output = input.output.size();
    if (prediction) prediction->Append(output);
    if (!lookup) return;
    lookup->Append(prompt);
    lookup->Append(output);
  }
  std::span<const int32_t> LookUp(int32_t most) {
    // transformers' rule drafts nothing where only one more token is wanted.
    if (options.rule == LookupRule::kFirst && static_cast<int64_t>(num_output) + 1 >= max_reply) return {};
    return lookup->Find(std::min(most, options.max_tokens));
  }
  // Behind the reply's only token so far, where that is what the drafts begin with.
  std::span<const int32_t> Given(const ProposeInput& input, int32_t most) const {
    if (given.empty() || input.output.size() != 1 || input.output.front() != given.front()) return {};
    return given.subspan(1, std::min(given.size() - 1, static_cast<size_t>(most)));
  }
};

}  // namespace

int32_t LookupDrafter::MostNodes(const GenerationRequest& request) const {
  const auto given = static_cast<int32_t>(std::min<size_t>(request.draft_ids.size(), tree::Topology::kMaxDepth));
  return std::max({request.lookup.max_tokens, request.prediction_ids.empty() ? 0 : kMostPredicted, given - 1});
}

std::vector<int32_t> LookupDrafter::EosTokensOf(const GenerationRequest& request) const {
  if (request.stop.ignore_eos) return {};
  std::vector<int32_t> ids = eos_token_ids_;
  ids.insert(ids.end(), request.stop.eos_token_ids.begin(), request.stop.eos_token_ids.end());
  return ids;
}

std::unique_ptr<DraftState> LookupDrafter::NewState(const GenerationRequest& request) const {
  auto state = std::make_unique<TextState>();
  state->options = request.lookup;
  state->max_reply = request.stop.max_tokens;
  if (request.lookup.max_tokens > 0) state->lookup.emplace(request.lookup, EosTokensOf(request));
  if (!request.prediction_ids.empty()) state->prediction.emplace(request.prediction_ids);
  state->given = request.draft_ids;
  return state;
}

void LookupDrafter::Propose(std::span<ProposeInput> inputs) {
  for (ProposeInput& input : inputs) {
    auto& state = *static_cast<TextState*>(input.state);
    tree::TokenTree& tree = *input.tree;
    tree.Reset(input.output.back());
    state.TakeIn(input);
    const int32_t most = std::min(input.budget.max_nodes, input.budget.max_depth);
    std::span<const int32_t> chain = state.Given(input, most);
    DraftSource source = DraftSource::kGiven;
    if (chain.empty() && state.prediction) {
      chain = state.prediction->Next(std::min(most, kMostPredicted));
      source = DraftSource::kPrediction;
    }
    if (chain.empty() && state.lookup) {
      chain = state.LookUp(most);
      source = DraftSource::kLookup;
    }
    if (chain.empty()) continue;
    tree.topology = chains_.Of(static_cast<int32_t>(chain.size()));
    tree.tokens.insert(tree.tokens.end(), chain.begin(), chain.end());
    tree.source = source;
  }
}

}  // namespace hydrant::draft
