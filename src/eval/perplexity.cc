// SPDX-License-Identifier: Apache-2.0
#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "eval/chunked_forward.h"
#include "hydrant/error.h"
#include "sampling/choose.h"

namespace hydrant::eval {
namespace {

void CheckTexts(const load::LoadedModel& loaded, std::span<const std::vector<int32_t>> texts) {
  bool any = false;
  for (const std::vector<int32_t>& text : texts) {
    any = any || text.size() > 1;
    for (const int32_t token : text) {
      if (token >= 0 && token < loaded.info.vocab_size) continue;
      throw UserError("a text has token " + std::to_string(token) + ", expected 0 to " +
                      std::to_string(loaded.info.vocab_size - 1));
    }
  }
  if (!any) throw UserError("there is nothing to score", "give a text of two tokens at least");
}

double LogLoss(std::span<const float> logits, int32_t target) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + largest - static_cast<double>(logits[static_cast<size_t>(target)]);
}

class Evaluation {
 public:
  Evaluation(load::LoadedModel& loaded, const PerplexityOptions& options)
      : loaded_(&loaded),
        options_(options),
        pool_(loaded.kv_shape, options.context / kernels::kBlockPositions + 1),
        forward_(loaded.decoder.get(), &pool_) {}

  void Run(std::span<const std::vector<int32_t>> texts) {
    int64_t all = 0;
    for (const std::vector<int32_t>& text : texts) all += std::max<int64_t>(0, static_cast<int64_t>(text.size()) - 1);
    if (options_.max_tokens > 0) all = std::min(all, options_.max_tokens);
    for (const std::vector<int32_t>& text : texts) {
      const auto length = static_cast<int64_t>(text.size());
      int64_t scored = 1;  // tokens of the text that are done; its first has nothing before it
      for (int64_t begin = 0; scored < length && result_.num_scored < all; begin += options_.stride) {
        const int64_t end = std::min({begin + options_.context, length, scored + all - result_.num_scored});
        if (end > scored) Window(std::span(text).subspan(static_cast<size_t>(begin)), scored - begin, end - begin);
        scored = std::max(scored, end);
        if (options_.progress) options_.progress(static_cast<double>(result_.num_scored) / static_cast<double>(all));
      }
    }
  }

  const PerplexityResult& result() const { return result_; }

 private:
  // Scores the tokens `first` .. `end` - 1 of a window that begins at tokens[0].
  void Window(std::span<const int32_t> tokens, int64_t first, int64_t end) {
    ++result_.num_windows;
    kv::BlockTable table(&pool_);
    const bool reserved = table.Reserve(static_cast<int32_t>(end));
    HYDRANT_CHECK(reserved);
    const auto on_chunk = [&](int32_t at, int32_t count, const model::ForwardOutput& output) {
      table.Append(count);
      load::CheckKvRange(table, at, count, loaded_->base_layers(), loaded_->options.model);
      Score(tokens.subspan(static_cast<size_t>(std::max<int64_t>(at + 1, first))), output);
    };
    // The last token's own row says nothing about a scored one; row i is about token i + 1.
    forward_.Run(tokens.first(static_cast<size_t>(end - 1)), table, loaded_->options.prefill_chunk,
                 static_cast<int32_t>(first - 1), on_chunk);
  }

  // Row r of the logits is about targets[r].
  void Score(std::span<const int32_t> targets, const model::ForwardOutput& output) {
    const Matrix& logits = output.logits;
    losses_.resize(static_cast<size_t>(logits.rows()));
    correct_.resize(losses_.size());
    loaded_->pool->ParallelFor(logits.rows(), 4, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto i = static_cast<size_t>(r);
        losses_[i] = LogLoss(logits.row_span(r), targets[i]);
        correct_[i] = sampling::Argmax(logits.row_span(r)) == targets[i] ? 1 : 0;
      }
    });
    for (size_t i = 0; i < losses_.size(); ++i) {
      result_.log_loss += losses_[i];
      result_.num_correct += correct_[i];
    }
    result_.num_scored += logits.rows();
    if (!std::isfinite(result_.log_loss)) throw load::NoFiniteLogits(loaded_->options.model);
  }

  load::LoadedModel* loaded_;
  PerplexityOptions options_;
  kv::BlockPool pool_;
  ChunkedForward forward_;
  std::vector<double> losses_;
  std::vector<int> correct_;
  PerplexityResult result_;
};

}  // namespace

void SetDefaults(const load::LoadedModel& loaded, PerplexityOptions& options) {
  const int64_t most = loaded.weights.config.max_positions;
  if (most < 2) {
    throw FileError(loaded.weights.config.file, "'max_position_embeddings' is 1, expected 2 for a token to be scored");
  }
  if (options.context == 0) options.context = static_cast<int32_t>(most);
  if (options.context < 2 || options.context > most) {
    throw UserError("PerplexityOptions::context is " + std::to_string(options.context) + ", expected 2 to " +
                    std::to_string(most) + " ('max_position_embeddings' of " + loaded.weights.config.file + ")");
  }
  if (options.stride == 0) options.stride = options.context / 2;
  if (options.stride < 1 || options.stride > options.context) {
    throw UserError("PerplexityOptions::stride is " + std::to_string(options.stride) +
                    ", expected 1 to the context of " + std::to_string(options.context));
  }
}

double PerplexityResult::perplexity() const { return std::exp(log_loss / static_cast<double>(num_scored)); }

PerplexityResult EvalPerplexity(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> texts,
                                const PerplexityOptions& options) {
  PerplexityOptions checked = options;
  SetDefaults(loaded, checked);
  CheckTexts(loaded, texts);
  Evaluation evaluation(loaded, checked);
  evaluation.Run(texts);
  return evaluation.result();
}

}  // namespace hydrant::eval
