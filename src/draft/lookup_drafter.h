// SPDX-License-Identifier: Apache-2.0
// A drafter that takes chains of tokens from texts: drafts that came with the request (GenerationRequest::draft_ids),
// what a prediction says next (prediction.h), and the sequence's own text (lookup.h), in this order. It reads no
// weights and wants no hidden states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "draft/drafter.h"

namespace hydrant::draft {

class LookupDrafter : public Drafter {
 public:
  // Tokens that end a reply, beside those of a request.
  void SetEosTokenIds(std::vector<int32_t> ids) { eos_token_ids_ = std::move(ids); }

  const char* name() const override { return "lookup"; }
  int32_t max_depth() const override { return tree::Topology::kMaxDepth; }
  int32_t MostNodes(const GenerationRequest& request) const override;
  std::unique_ptr<DraftState> NewState(const GenerationRequest& request) const override;
  void Commit(std::span<const CommitInput> /*inputs*/) override {}  // all tokens come with Propose
  void Propose(std::span<ProposeInput> inputs) override;

 private:
  std::vector<int32_t> EosTokensOf(const GenerationRequest& request) const;

  std::vector<int32_t> eos_token_ids_;
  Chains chains_;
};

}  // namespace hydrant::draft
