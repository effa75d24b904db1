// SPDX-License-Identifier: Apache-2.0
// Drafts from the text itself: what followed its last tokens where they stood before, in the prompt or in the reply
// (prompt lookup, github.com/apoorvumang/prompt-lookup-decoding). Costs no weights; pays where text repeats itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/suffix_automaton.h"
#include "hydrant/generation.h"

namespace hydrant::draft {

// All tokens of one sequence, and where the run that ends them has stood before. A token costs O(1), and so does a
// lookup beside the tokens that it gives (suffix_automaton.h).
class TokenLookup {
 public:
  // `eos_token_ids`: LookupRule::kFirst gives none of them.
  explicit TokenLookup(const LookupOptions& options, std::vector<int32_t> eos_token_ids = {});

  void Append(std::span<const int32_t> tokens);

  // What may come next, by the rule of the options: at most `max_tokens`, and none where the last tokens are new. Valid
  // until the next call.
  std::span<const int32_t> Find(int32_t max_tokens);

 private:
  // What followed, up to the end of the text or to a token that ends a reply.
  void FindFirst(int32_t max_tokens);
  // As many tokens as agree. A place near the end continues into its own prediction, so that a short period repeats.
  void FindLast(int32_t max_tokens);

  LookupRule rule_;
  std::vector<int32_t> eos_token_ids_;
  SuffixAutomaton text_;
  std::vector<int32_t> found_;
};

}  // namespace hydrant::draft
