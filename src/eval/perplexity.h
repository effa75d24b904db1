// SPDX-License-Identifier: Apache-2.0
// Perplexity of texts, by the forward pass that generation uses.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "load/loaded_model.h"

namespace hydrant::eval {

// Windows as in the documentation of Hugging Face transformers ("Perplexity of fixed-length models"): each text is cut
// into windows of `context` tokens that begin `stride` tokens after one another, and every token but a text's first is
// scored once, by the first window that holds it: with context - stride to context - 1 tokens before it, fewer only
// near the text's beginning. No token is added to later windows.
struct PerplexityOptions {
  int32_t context = 0;     // 0: all positions of the model
  int32_t stride = 0;      // 0: half of the context
  int64_t max_tokens = 0;  // most scored tokens; 0: all
  std::function<void(double share)> progress = {};
};

struct PerplexityResult {
  double log_loss = 0;      // sum of -ln p over the scored tokens, in double
  int64_t num_scored = 0;   // tokens
  int64_t num_correct = 0;  // of them the most likely ones
  int64_t num_windows = 0;
  double perplexity() const;
};

// Puts numbers in the place of the zeros that stand for the model's defaults. Throws UserError for settings out of
// range.
void SetDefaults(const load::LoadedModel& loaded, PerplexityOptions& options);

// `texts`: token ids as the model shall see them, BOS included where it wants one. Throws UserError for ids outside the
// vocabulary, settings out of range, and texts without a token to score.
PerplexityResult EvalPerplexity(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> texts,
                                const PerplexityOptions& options);

}  // namespace hydrant::eval
