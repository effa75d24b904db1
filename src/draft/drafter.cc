// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter.h"

#include <algorithm>
#include <utility>

namespace hydrant::draft {

bool Drafter::MayDraft(const ProposeInput& input) const {
  if (input.budget.max_nodes == 0 || input.budget.max_depth == 0) return false;
  if (input.dynamic != nullptr || input.beam != nullptr) return GrowsTrees();
  return !FillsShapes() || (input.shape != nullptr && input.shape->whole().num_nodes() > 1);
}

void Drafter::LogitsAlong(std::span<AlongInput> inputs) {
  for (AlongInput& input : inputs) input.logits->Resize(0, 0);
}

void HeadLogits(Drafter& drafter, DraftState& state, const DraftKv& kv, std::vector<int32_t> root_and_path,
                Matrix& logits) {
  const auto depth = static_cast<size_t>(drafter.usual_depth());
  AlongInput input{.state = &state, .kv = kv, .tokens = {}, .logits = &logits};
  for (;;) {
    input.tokens = std::span(root_and_path).first(std::min(root_and_path.size(), depth));
    drafter.LogitsAlong(std::span(&input, 1));
    if (root_and_path.size() >= depth || logits.rows() == 0) return;
    root_and_path.push_back(sampling::Argmax(std::as_const(logits).row_span(logits.rows() - 1)));
  }
}

}  // namespace hydrant::draft
