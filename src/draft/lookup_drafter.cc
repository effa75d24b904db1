// SPDX-License-Identifier: Apache-2.0
#include "draft/lookup_drafter.h"

#include <algorithm>
#include <optional>

#include "draft/lookup.h"

namespace hydrant::draft {
namespace {

struct LookupState : DraftState {
  std::optional<TokenLookup> lookup;  // none: the request asks for none
  int32_t max_tokens = 0;
  size_t num_prompt = 0, num_output = 0;  // tokens that `lookup` knows

  void TakeIn(const ProposeInput& input) {
    lookup->Append(input.prompt.subspan(num_prompt));
    num_prompt = input.prompt.size();
    lookup->Append(input.output.subspan(num_output));
    num_output = input.output.size();
  }
};

}  // namespace

std::unique_ptr<DraftState> LookupDrafter::NewState(const GenerationRequest& request) const {
  auto state = std::make_unique<LookupState>();
  state->max_tokens = request.lookup.max_tokens;
  if (state->max_tokens > 0) state->lookup.emplace(request.lookup.min_match);
  return state;
}

void LookupDrafter::Propose(std::span<ProposeInput> inputs) {
  for (ProposeInput& input : inputs) {
    auto& state = *static_cast<LookupState*>(input.state);
    tree::TokenTree& tree = *input.tree;
    tree.Reset(input.output.back());
    if (!state.lookup) continue;
    state.TakeIn(input);
    const int32_t most = std::min({state.max_tokens, input.budget.max_nodes, input.budget.max_depth});
    const std::span<const int32_t> found = state.lookup->Find(most);
    if (found.empty()) continue;
    tree.topology = chains_.Of(static_cast<int32_t>(found.size()));
    tree.tokens.insert(tree.tokens.end(), found.begin(), found.end());
    tree.looked_up = true;
  }
}

}  // namespace hydrant::draft
