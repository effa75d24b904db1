// SPDX-License-Identifier: Apache-2.0
// How a token is chosen from logits. Drafting and verifying share these functions.
//
// Coupled sampling: token = argmax over allowed tokens of processed_logit / T + G(seed, position, token), where G is
// standard Gumbel noise from Philox4x32-10 with key = seed and counter = (position, token / 4, stream, 0). The noise
// belongs to the position (index of the generated token in its reply), not to the step: that is why any tree, drafter
// or batch gives the same text. Greedy: no noise. Ties go to the lower token id everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hydrant/generation.h"
#include "kernels/kernels.h"
#include "kernels/ops/top_k.h"

namespace hydrant::sampling {

// Tokens before the one to choose, for the penalties. `path` = drafted tokens after `output` on this node's own path.
struct TokenHistory {
  std::span<const int32_t> prompt;
  std::span<const int32_t> output;
  std::span<const int32_t> path;
};

// Noise rows of one sequence, kept while later steps may need the same positions (a drafter and the verifier share
// them).
class NoiseCache {
 public:
  // A step asks for the positions of its tree's levels and of the bonus: at most 64 + 2.
  static constexpr int32_t kKeep = 66;
  // Numbers of different streams have nothing to do with each other.
  enum class Stream : uint32_t { kChoices = 0, kDrafts = 1, kUniforms = 2 };

  NoiseCache(const kernels::KernelTable* table, uint64_t seed, int32_t vocab_size, Stream stream = Stream::kChoices);
  // [V], valid until Forget or `kKeep` further positions were asked for.
  std::span<const float> Row(int64_t position);
  // Drops rows of positions below `position`.
  void Forget(int64_t position);
  // Uniform numbers in (0, 1) of that position, from the stream kUniforms.
  void Uniforms(int64_t position, std::span<double> out) const;

 private:
  struct Entry {
    int64_t position;
    std::vector<float> noise;
  };
  const kernels::KernelTable* table_;
  uint64_t seed_;
  int32_t vocab_size_;
  Stream stream_;
  std::vector<Entry> rows_;
  std::vector<std::vector<float>> spare_;
};

// Applies penalties, temperature, top-k, top-p and min-p: processed[t] = (logit - largest logit) / T, or -infinity when
// dropped. Temperature 0: the penalised logits. NaN becomes -infinity. logits, processed [V]; may not alias.
void ProcessLogits(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                   std::span<float> processed);

// The base model's choice at a generated position. `scratch` [V] is overwritten.
int32_t ChooseToken(std::span<const float> logits, const SamplingOptions& options, const TokenHistory& history,
                    NoiseCache& noise, int64_t position, std::vector<float>& scratch);

// Index of the largest value, the lowest index among equals. NaN never wins; all NaN gives 0.
int32_t Argmax(std::span<const float> values);

// The k best indices of `values`, best first, ties to the lower index. k is cut to the size. out is resized.
void TopK(std::span<const float> values, int32_t k, std::vector<int32_t>& out);

// How a drafter ranks tokens where each token's score depends on its own logit alone (no penalties, and no filters with
// noise); nothing otherwise. `noise` and `position` as in RankCandidates, which ranks by the same scores then.
std::optional<kernels::TopKRule> ScoreRule(const SamplingOptions& options, bool coupled, NoiseCache& noise,
                                           int64_t position, int32_t k);

// A drafter's candidates: the k best of a head's logits, best first, k cut to V, ties to the lower id. `coupled` false:
// by the head's logit. Otherwise as the verifier would choose: by processed logit plus, at temperature > 0, the
// position's noise; without penalties and filters that is logit / temperature + noise. Tokens that the request's own
// filters keep come first, then the rest by the same score without filters, so that k candidates always exist.
// `probabilities`, if wanted, gets those of the candidates by a softmax over the scores that ranked them, and 0 for
// tokens that the filters drop.
void RankCandidates(std::span<const float> head_logits, const SamplingOptions& options, bool coupled,
                    const TokenHistory& history, NoiseCache& noise, int64_t position, int32_t k,
                    std::vector<float>& scratch, std::vector<int32_t>& out,
                    std::vector<float>* probabilities = nullptr);

}  // namespace hydrant::sampling
