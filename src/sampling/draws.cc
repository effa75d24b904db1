// SPDX-License-Identifier: Apache-2.0
#include "sampling/draws.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/generic/math_inl.h"

namespace hydrant::sampling {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// exp(scores) over their sum. The largest score is 0, or all are -infinity.
template <typename T>
void Normalise(std::span<const float> scores, std::vector<T>& probs) {
  double sum = 0;
  for (const float score : scores) sum += score > kNever ? kernels::ExpDouble(score) : 0;
  probs.resize(scores.size());
  for (size_t t = 0; t < scores.size(); ++t) {
    probs[t] = static_cast<T>(scores[t] > kNever ? kernels::ExpDouble(scores[t]) / sum : 0);
  }
}

}  // namespace

void DrawProbabilities(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                       std::vector<float>& scratch, std::vector<double>& probs) {
  HYDRANT_CHECK(options.temperature > 0);
  scratch.resize(logits.size());
  ProcessLogits(logits, options, history, scratch);
  Normalise(std::span<const float>(scratch), probs);
}

void DrawCandidates(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                    NoiseCache& noise, int64_t position, int32_t k, std::vector<float>& scratch,
                    std::vector<int32_t>& out, std::vector<float>& probs) {
  HYDRANT_CHECK(options.temperature > 0);
  scratch.resize(logits.size());
  ProcessLogits(logits, options, history, scratch);
  Normalise(std::span<const float>(scratch), probs);
  const std::span<const float> row = noise.Row(position);
  for (size_t t = 0; t < scratch.size(); ++t) scratch[t] += row[t];
  TopK(scratch, k, out);
}

int32_t DrawFrom(std::span<const double> weights, std::span<const float> noise) {
  int32_t best = -1;
  double largest = 0;
  for (size_t t = 0; t < weights.size(); ++t) {
    if (!(weights[t] > 0)) continue;
    const double score = kernels::LogDouble(weights[t]) + static_cast<double>(noise[t]);
    if (best >= 0 && !(score > largest)) continue;
    best = static_cast<int32_t>(t);
    largest = score;
  }
  HYDRANT_CHECK(best >= 0);
  return best;
}

}  // namespace hydrant::sampling
