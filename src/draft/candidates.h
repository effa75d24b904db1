// SPDX-License-Identifier: Apache-2.0
// From a head's rows to drafted tokens: ranks inside the lm head where a score depends on its own logit alone, and by
// whole rows of logits where penalties or filters need them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "draft/heads/head_stack.h"
#include "kernels/ops/top_k.h"

namespace hydrant::draft {

class CandidateRanker {
 public:
  // Of lm heads with `outputs` outputs: output o is token token_map[o]; with an empty map, which must outlive this, o.
  CandidateRanker(int64_t vocab_size, int64_t outputs, std::span<const int32_t> token_map);

  // The rows of one head's pass, in order. `position`: index in the reply of the token to draft.
  void Start(bool rank_in_head = true);
  void Add(const ProposeInput& input, int64_t position, int32_t k, bool probabilities);
  // What a head with `outputs` outputs shall write for `rows` rows. Outside regions.
  HeadOutput Output(int num_threads, int64_t rows, int64_t outputs);

  // After the pass. Logits by token; tokens that have no output have -infinity.
  std::span<const float> Logits(int64_t r);
  // The k best of row r, best first. `path`: the tokens drafted below the root on the way to this row's node.
  std::span<const int32_t> Candidates(int64_t r, std::span<const int32_t> path);
  // The head's probability, among all tokens and by the scores that rank them, of each token that Candidates gave last.
  // Empty where Add asked for none. Where the input's drafts are drawn, those of all tokens [V].
  std::span<const float> probabilities() const { return rank_in_head_ ? best_.probabilities() : probabilities_; }

 private:
  struct Row {
    const ProposeInput* input;
    int64_t position;
    int32_t k;
    bool probabilities;
  };

  int64_t vocab_size_;
  std::span<const int32_t> token_map_;
  int64_t most_in_head_;  // most candidates to rank inside the lm head; 0: its token map is not ascending, as ties need
  bool rank_in_head_ = true;
  std::vector<Row> rows_;
  std::vector<kernels::TopKRule> rules_;
  kernels::TopKOutput best_;
  Matrix logits_;  // [R, V']
  std::vector<float> mapped_, scratch_, probabilities_;
  std::vector<int32_t> candidates_;
};

}  // namespace hydrant::draft
