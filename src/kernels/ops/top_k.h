// SPDX-License-Identifier: Apache-2.0
// An lm head whose logits never leave the cache: each thread computes a few hundred outputs at a time and keeps the
// best of each row. For drafting, where only a row's candidates matter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops/matmul.h"

namespace hydrant::kernels {

// What a row's candidates are ranked by: the logit, or logit / temperature + noise[token].
struct TopKRule {
  int32_t k = 1;
  float temperature = 0;         // > 0 with noise
  const float* noise = nullptr;  // [V]
  bool probabilities = false;    // whether they are wanted too: of a softmax over these scores
};

struct ScoredToken {
  float score;
  int32_t token;
};

// The best so far of one row, best first; ties to the lower token. NaN counts as -infinity. On lines of its own: each
// thread has its own, and writes to it all the time.
class alignas(64) BestTokens {
 public:
  void Start(int32_t k);
  // Scores of tokens in ascending order, all above those offered before.
  void Offer(const float* scores, const int32_t* tokens, int64_t count);
  // Scores of tokens first .. first + count - 1.
  void Offer(const float* scores, int32_t first, int64_t count);
  std::span<const ScoredToken> tokens() const { return best_; }
  size_t k() const { return k_; }

 private:
  void Insert(float score, int32_t token);
  template <typename TokenAt>
  void Scan(const float* scores, int64_t count, const TokenAt& token_at);

  size_t k_ = 0;
  std::vector<ScoredToken> best_;
};

// Turns scores into probabilities: exp(score) over the sum of all exp. `all`: the ExpSums of all scores, in order.
void ToProbabilities(std::span<const ExpSum> all, std::span<float> scores);

// Room for the rows of one MatmulTopK and its result.
class TopKOutput {
 public:
  // Outside regions. `outputs`: of the lm head.
  void Reserve(int num_threads, std::span<const TopKRule> rules, int64_t outputs);
  // After the region: candidates of a row, best first; ties to the lower token. Good until the next call.
  std::span<const int32_t> Row(int64_t r);
  // Probabilities of the tokens that Row gave last, the same for any number of threads. Empty where they were not
  // wanted.
  std::span<const float> probabilities() const { return probabilities_; }

 private:
  friend void MatmulTopK(Queue& queue, const MatmulInput& input, const MatmulJob& head,
                         std::span<const int32_t> token_map, std::span<const TopKRule> rules, TopKOutput& output);

  std::vector<std::vector<BestTokens>> best_;  // [threads][R]
  std::vector<Matrix> logits_;                 // [threads] of [R, outputs at a time]
  std::vector<std::vector<ExpSum>> exp_sums_;  // [R] of [ceil(outputs / kExpSumScores)], or none
  std::vector<int32_t> merged_;                // [k], of the row asked for last
  std::vector<float> probabilities_;           // [k]
  std::vector<size_t> next_;                   // [threads] scratch
};

// An op, inside a region, that does not wait for the other threads: TopKOutput is ready when the region is over.
// head.out is not used. Output o is token token_map[o] (ascending), or o without a map.
void MatmulTopK(Queue& queue, const MatmulInput& input, const MatmulJob& head, std::span<const int32_t> token_map,
                std::span<const TopKRule> rules, TopKOutput& output);

}  // namespace hydrant::kernels
