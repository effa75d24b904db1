// SPDX-License-Identifier: Apache-2.0
// Drafts that are drawn at random, for the rejection rule (Leviathan et al., 2023, arXiv 2211.17192, section 2.3),
// which needs to know from which distribution. Verifier and drafter have distributions from the same function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/choose.h"

namespace hydrant::sampling {

// The probability of each token as plain decoding draws it: after penalties, temperature and filters.
// options.temperature > 0. logits, probs [V]; all 0 where no logit is finite.
void DrawProbabilities(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                       std::vector<float>& scratch, std::vector<double>& probs);

// k different tokens, k cut to V, drawn one after the other without replacement from DrawProbabilities, which go to
// `probs` [V]: the k largest of their logarithms plus Gumbel noise are such a draw (Kool et al., 2019, arXiv
// 1903.06059). Tokens of probability 0 come last, where others are too few.
void DrawCandidates(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                    NoiseCache& noise, int64_t position, int32_t k, std::vector<float>& scratch,
                    std::vector<int32_t>& out, std::vector<float>& probs);

// The largest of log(weight) + noise: a token drawn in proportion to the weights, of which one at least is positive.
int32_t DrawFrom(std::span<const double> weights, std::span<const float> noise);

}  // namespace hydrant::sampling
