// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/top_k.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/generic/math_inl.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// Panels whose logits are computed at a time: 32 KB of logits with 16 rows, which stay in the first two cache levels.
constexpr int64_t kPanelsAtATime = 32;
// Panels of one ExpSum. No two threads share them.
constexpr int64_t kUnitPanels = kExpSumScores / kPanelOutputs;
static_assert(kPanelsAtATime % kUnitPanels == 0);
constexpr int64_t kGroup = 16;  // scores that are compared at once with the worst score kept

int64_t UnitsOf(int64_t outputs) { return (outputs + kExpSumScores - 1) / kExpSumScores; }

// Turns logits into the scores of a rule.
void Rescore(const TopKRule& rule, const int32_t* tokens, int64_t first, std::span<float> scores) {
  if (rule.noise == nullptr) return;
  const float* noise = tokens == nullptr ? rule.noise + first : rule.noise;
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = scores[i] / rule.temperature + noise[tokens == nullptr ? static_cast<int32_t>(i) : tokens[i]];
  }
}

}  // namespace

void ToProbabilities(std::span<const ExpSum> all, std::span<float> scores) {
  double largest = kNever;
  for (const ExpSum& part : all) largest = std::max<double>(largest, part.largest);
  double sum = 0;  // in order
  for (const ExpSum& part : all) sum += part.sum * ExpDouble(part.largest - largest);
  for (float& score : scores) score = static_cast<float>(ExpDouble(score - largest) / sum);
}

void BestTokens::Start(int32_t k) {
  k_ = static_cast<size_t>(std::max(k, 0));
  best_.clear();
  // Room for one line more, which is never written: what malloc puts behind it may be another thread's.
  best_.reserve(k_ + 64 / sizeof(ScoredToken));
}

void BestTokens::Insert(float score, int32_t token) {
  if (best_.size() == k_) best_.pop_back();
  // Behind all entries with the same score, because their tokens are lower.
  const auto place = std::ranges::upper_bound(best_, score, std::greater<>(), &ScoredToken::score);
  best_.insert(place, {score, token});
}

template <typename TokenAt>
void BestTokens::Scan(const float* scores, int64_t count, const TokenAt& token_at) {
  if (k_ == 0) return;
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    const int64_t end = std::min(begin + kGroup, count);
    if (best_.size() == k_) {
      const float worst = best_.back().score;
      bool better = false;
      for (int64_t i = begin; i < end; ++i) better |= scores[i] > worst;
      if (!better) continue;
    }
    for (int64_t i = begin; i < end; ++i) {
      const float score = scores[i] == scores[i] ? scores[i] : kNever;
      if (best_.size() < k_ || score > best_.back().score) Insert(score, token_at(i));
    }
  }
}

void BestTokens::Offer(const float* scores, const int32_t* tokens, int64_t count) {
  Scan(scores, count, [&](int64_t i) { return tokens[i]; });
}

void BestTokens::Offer(const float* scores, int32_t first, int64_t count) {
  Scan(scores, count, [&](int64_t i) { return first + static_cast<int32_t>(i); });
}

void TopKOutput::Reserve(int num_threads, std::span<const TopKRule> rules, int64_t outputs) {
  best_.resize(static_cast<size_t>(num_threads));
  logits_.resize(static_cast<size_t>(num_threads));
  for (size_t t = 0; t < best_.size(); ++t) {
    best_[t].resize(std::max(best_[t].size(), rules.size()));
    for (size_t r = 0; r < rules.size(); ++r) best_[t][r].Start(rules[r].k);
    logits_[t].Resize(static_cast<int64_t>(rules.size()), kPanelsAtATime * kPanelOutputs);
  }
  exp_sums_.resize(std::max(exp_sums_.size(), rules.size()));
  for (size_t r = 0; r < rules.size(); ++r) {
    exp_sums_[r].resize(rules[r].probabilities ? static_cast<size_t>(UnitsOf(outputs)) : 0);
  }
}

// Threads have ascending ranges of tokens, so that an earlier thread wins ties.
std::span<const int32_t> TopKOutput::Row(int64_t r) {
  const auto row = static_cast<size_t>(r);
  const size_t k = best_.front()[row].k();
  next_.assign(best_.size(), 0);
  merged_.clear();
  probabilities_.clear();
  while (merged_.size() < k) {
    const ScoredToken* best = nullptr;
    size_t from = 0;
    for (size_t t = 0; t < next_.size(); ++t) {
      const std::span<const ScoredToken> tokens = best_[t][row].tokens();
      if (next_[t] == tokens.size()) continue;
      if (best != nullptr && !(tokens[next_[t]].score > best->score)) continue;
      best = &tokens[next_[t]];
      from = t;
    }
    if (best == nullptr) break;  // fewer tokens than candidates
    merged_.push_back(best->token);
    if (!exp_sums_[row].empty()) probabilities_.push_back(best->score);
    ++next_[from];
  }
  if (!probabilities_.empty()) ToProbabilities(exp_sums_[row], probabilities_);
  return merged_;
}

void MatmulTopK(Queue& queue, const MatmulInput& input, const MatmulJob& head, std::span<const int32_t> token_map,
                std::span<const TopKRule> rules, TopKOutput& output) {
  const Weight& weight = *head.weight;
  HYDRANT_CHECK(queue.in_region() && static_cast<int64_t>(rules.size()) == input.rows());
  input.Check(head);
  HYDRANT_CHECK(token_map.empty() || static_cast<int64_t>(token_map.size()) == weight.outputs);
  const auto thread = static_cast<size_t>(queue.thread_idx);
  Matrix& logits = output.logits_[thread];
  ForOwnItems(queue, UnitsOf(weight.outputs), 1, [&](int64_t begin, int64_t end) {
    const int64_t end_panel = std::min(end * kUnitPanels, weight.num_panels());
    for (int64_t panel = begin * kUnitPanels; panel < end_panel; panel += kPanelsAtATime) {
      const int64_t first = panel * kPanelOutputs;
      const int64_t last_panel = std::min(panel + kPanelsAtATime, end_panel);
      const int64_t count = std::min(last_panel * kPanelOutputs, weight.outputs) - first;
      input.Panels(head, panel, last_panel, logits);
      for (size_t r = 0; r < rules.size(); ++r) {
        float* scores = logits.row(static_cast<int64_t>(r));
        const TopKRule& rule = rules[r];
        const int32_t* tokens = token_map.empty() ? nullptr : token_map.data() + first;
        Rescore(rule, tokens, first, std::span(scores, static_cast<size_t>(count)));
        std::vector<ExpSum>& sums = output.exp_sums_[r];
        if (!sums.empty()) queue.table->exp_sums(scores, count, &sums[static_cast<size_t>(panel / kUnitPanels)]);
        BestTokens& best = output.best_[thread][r];
        if (tokens == nullptr) {
          best.Offer(scores, static_cast<int32_t>(first), count);
        } else {
          best.Offer(scores, tokens, count);
        }
      }
    }
  });
}

}  // namespace hydrant::kernels
