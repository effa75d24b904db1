// SPDX-License-Identifier: Apache-2.0
#include "draft/candidates.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "sampling/draws.h"

namespace hydrant::draft {

CandidateRanker::CandidateRanker(int64_t vocab_size, int64_t outputs, std::span<const int32_t> token_map)
    : vocab_size_(vocab_size), token_map_(token_map), most_in_head_(std::ranges::is_sorted(token_map) ? outputs : 0) {}

void CandidateRanker::Start(bool rank_in_head) {
  rank_in_head_ = rank_in_head;
  rows_.clear();
  rules_.clear();
}

void CandidateRanker::Add(const ProposeInput& input, int64_t position, int32_t k, bool probabilities) {
  rows_.push_back({&input, position, k, probabilities});
  rank_in_head_ = rank_in_head_ && k <= most_in_head_;
  rank_in_head_ = rank_in_head_ && input.draws == nullptr;
  if (!rank_in_head_) return;
  const std::optional<kernels::TopKRule> rule =
      sampling::ScoreRule(*input.sampling, input.coupled, *input.noise, position, k);
  rank_in_head_ = rule.has_value();
  if (!rule) return;
  rules_.push_back(*rule);
  rules_.back().probabilities = probabilities;
}

HeadOutput CandidateRanker::Output(int num_threads, int64_t rows, int64_t outputs) {
  HeadOutput output;
  if (rank_in_head_) {
    best_.Reserve(num_threads, rules_, outputs);
    output.token_map = token_map_;
    output.rules = rules_;
    output.best = &best_;
  } else {
    logits_.Resize(rows, outputs);
    output.logits = logits_;
  }
  return output;
}

std::span<const float> CandidateRanker::Logits(int64_t r) {
  const std::span<const float> row = std::as_const(logits_).row_span(r);
  if (token_map_.empty() && row.size() == static_cast<size_t>(vocab_size_)) return row;
  mapped_.assign(static_cast<size_t>(vocab_size_), -std::numeric_limits<float>::infinity());
  for (size_t o = 0; o < row.size(); ++o) mapped_[token_map_.empty() ? o : static_cast<size_t>(token_map_[o])] = row[o];
  return mapped_;
}

std::span<const int32_t> CandidateRanker::Candidates(int64_t r, std::span<const int32_t> path) {
  if (rank_in_head_) return best_.Row(r);
  const Row& row = rows_[static_cast<size_t>(r)];
  probabilities_.clear();
  const sampling::TokenHistory history{.prompt = row.input->prompt, .output = row.input->output, .path = path};
  if (row.input->draws != nullptr) {
    sampling::DrawCandidates(Logits(r), *row.input->sampling, history, *row.input->draws, row.position, row.k, scratch_,
                             candidates_, probabilities_);
    return candidates_;
  }
  sampling::RankCandidates(Logits(r), *row.input->sampling, row.input->coupled, history, *row.input->noise,
                           row.position, row.k, scratch_, candidates_, row.probabilities ? &probabilities_ : nullptr);
  return candidates_;
}

}  // namespace hydrant::draft
