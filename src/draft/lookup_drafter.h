// SPDX-License-Identifier: Apache-2.0
// A drafter that looks up a sequence's own text (lookup.h). It proposes a chain of the tokens that followed before,
// where GenerationRequest's `lookup` asks for it. It reads no weights and wants no hidden states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "draft/drafter.h"

namespace hydrant::draft {

class LookupDrafter : public Drafter {
 public:
  const char* name() const override { return "lookup"; }
  int32_t max_depth() const override { return tree::Topology::kMaxDepth; }
  int32_t MostNodes(const GenerationRequest& request) const override { return request.lookup.max_tokens; }
  std::unique_ptr<DraftState> NewState(const GenerationRequest& request) const override;
  void Commit(std::span<const CommitInput> /*inputs*/) override {}  // all tokens come with Propose
  void Propose(std::span<ProposeInput> inputs) override;

 private:
  Chains chains_;
};

}  // namespace hydrant::draft
