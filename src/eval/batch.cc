// SPDX-License-Identifier: Apache-2.0
#include "eval/batch.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <utility>

#include "hydrant/error.h"

namespace hydrant::eval {
namespace {

using Clock = std::chrono::steady_clock;

// One batch. Times in seconds, tokens of all sequences.
struct Batch {
  std::vector<GenerationResult> results;
  double seconds = 0, decode_seconds = 0;
  int64_t tokens = 0, decode_tokens = 0;

  bool is_cancelled() const {
    return std::ranges::any_of(
        results, [](const GenerationResult& one) { return one.finish_reason == FinishReason::kCancelled; });
  }
};

// Submits requests, so many at a time, and notes when all of the first ones have a token.
class OpenRequests {
 public:
  OpenRequests(const BatchMethod& method, std::span<const GenerationRequest> requests, size_t most_open)
      : method_(method), requests_(requests), most_open_(most_open), has_begun_(requests.size(), false) {
    batch_.results.resize(requests.size());
  }

  Batch Run() {
    const Clock::time_point begin = Clock::now();
    decoding_ = begin;
    for (;;) {
      while (open_ < most_open_ && next_ < requests_.size()) Submit(next_++);
      if (open_ == 0) break;
      method_.engine->Step();
    }
    const Clock::time_point end = Clock::now();
    for (const GenerationResult& result : batch_.results) {
      if (result.error) std::rethrow_exception(result.error);
    }
    batch_.seconds = std::chrono::duration<double>(end - begin).count();
    batch_.decode_seconds = std::chrono::duration<double>(end - decoding_).count();
    batch_.decode_tokens = batch_.tokens - before_;
    return std::move(batch_);
  }

 private:
  void Submit(size_t i) {
    GenerationRequest request = requests_[i];
    request.use_drafter = method_.use_drafter;
    if (!method_.tree.empty()) request.tree = method_.tree;
    RequestCallbacks callbacks;
    callbacks.on_emit = [this, i](const Emission& emission) {
      OnTokens(i, static_cast<int64_t>(emission.token_ids.size()));
      return true;
    };
    callbacks.on_done = [this, i](GenerationResult result) {
      batch_.results[i] = std::move(result);
      --open_;
    };
    method_.engine->Submit(request, std::move(callbacks));
    ++open_;
  }

  void OnTokens(size_t i, int64_t count) {
    if (count == 0) return;
    batch_.tokens += count;
    if (has_begun_[i]) return;
    has_begun_[i] = true;
    if (++num_begun_ == requests_.size() && most_open_ == requests_.size()) {
      decoding_ = Clock::now();
      before_ = batch_.tokens;
    }
  }

  const BatchMethod& method_;
  std::span<const GenerationRequest> requests_;
  size_t most_open_;
  std::vector<bool> has_begun_;
  Batch batch_;
  size_t open_ = 0, next_ = 0, num_begun_ = 0;
  Clock::time_point decoding_;
  int64_t before_ = 0;  // tokens that were there when the last sequence began
};

// What one method and number have come to, round by round.
struct Times {
  std::vector<double> rates, decode_rates, speedups;
  double tokens = 0, steps = 0, num_emitted = 0, nodes = 0, draft_ms = 0, forward_ms = 0, prompt_ms = 0;
  double sequences = 0;
  std::string tree;

  void Add(const GenerationResult& result) {
    tokens += static_cast<double>(result.token_ids.size()) - 1;
    steps += static_cast<double>(result.num_emitted.size());
    num_emitted += std::accumulate(result.num_emitted.begin(), result.num_emitted.end(), 0.0);
    nodes += static_cast<double>(result.num_drafted);
    draft_ms += result.phase_ms.draft;
    forward_ms += result.phase_ms.forward;
    prompt_ms += result.phase_ms.prefill;
    sequences += 1;
    if (result.num_drafted > 0) tree = result.tree.chosen.name;
  }
  BatchRow Row(int32_t at_a_time) const {
    const double all = std::max(steps, 1.0);
    return {.sequences = at_a_time,
            .tokens_per_second = SpreadOf(rates),
            .decode_tokens_per_second = SpreadOf(decode_rates),
            .speedup = SpreadOf(speedups),
            .tokens_per_step = steps > 0 ? tokens / steps : 1,
            .num_emitted = steps > 0 ? num_emitted / steps : 1,
            .nodes_per_step = nodes / all,
            .draft_ms = draft_ms / all,
            .forward_ms = forward_ms / all,
            .prompt_ms = prompt_ms / std::max(sequences, 1.0),
            .tree = tree};
  }
};

class BatchRunner {
 public:
  BatchRunner(std::span<const BatchMethod> methods, std::span<const GenerationRequest> requests,
              const BatchOptions& options)
      : methods_(methods), requests_(requests), options_(options) {
    times_.assign(methods.size(), std::vector<Times>(options.sequences.size()));
    total_ = static_cast<double>(requests.size()) +
             static_cast<double>(methods.size() * options.sequences.size()) * (options.rounds + 1);
  }

  BatchResult Run() {
    BatchResult result;
    if (RunAlone()) {
      for (int round = 0; round <= options_.rounds && RunRound(round); ++round) result.rounds = round;
    }
    for (const std::vector<Times>& own : times_) {
      std::vector<BatchRow>& rows = result.rows.emplace_back();
      for (size_t s = 0; s < own.size(); ++s) rows.push_back(own[s].Row(options_.sequences[s]));
    }
    return result;
  }

 private:
  bool GoesOn() { return !options_.on_progress || options_.on_progress(static_cast<double>(++done_) / total_); }

  // The texts that are expected. False: stopped.
  bool RunAlone() {
    for (const GenerationRequest& request : requests_) {
      const Batch alone = OpenRequests(methods_.front(), std::span(&request, 1), 1).Run();
      if (alone.is_cancelled()) return false;
      expected_.push_back(alone.results.front().token_ids);
      if (!GoesOn()) return false;
    }
    return true;
  }

  // Round 0 is not timed. False: stopped, and the round does not count.
  bool RunRound(int round) {
    std::vector<std::vector<Batch>> batches(methods_.size());
    for (size_t s = 0; s < options_.sequences.size(); ++s) {
      for (size_t i = 0; i < methods_.size(); ++i) {
        const size_t m = (i + static_cast<size_t>(round)) % methods_.size();
        const auto count = static_cast<size_t>(options_.sequences[s]);
        Batch batch = OpenRequests(methods_[m], options_.is_queue ? requests_ : requests_.first(count), count).Run();
        if (batch.is_cancelled()) return false;
        CheckTexts(methods_[m], batch);
        batches[m].push_back(std::move(batch));
        if (!GoesOn()) return false;
      }
    }
    if (round > 0) Add(batches);
    return true;
  }

  void CheckTexts(const BatchMethod& method, const Batch& batch) const {
    for (size_t i = 0; i < batch.results.size(); ++i) {
      const std::vector<int32_t>& found = batch.results[i].token_ids;
      if (found == expected_[i]) continue;
      const auto at = std::ranges::mismatch(expected_[i], found).in1 - expected_[i].begin();
      throw InternalError(method.name + ": sequence " + std::to_string(i) + " of " +
                              std::to_string(batch.results.size()) + " differs from its text alone at token " +
                              std::to_string(at),
                          "this is a bug in hydrant; please report it with the command that led here");
    }
  }

  void Add(const std::vector<std::vector<Batch>>& batches) {
    const auto rate = [](const Batch& batch) {
      return batch.decode_seconds > 0 ? static_cast<double>(batch.decode_tokens) / batch.decode_seconds : 0;
    };
    for (size_t m = 0; m < batches.size(); ++m) {
      for (size_t s = 0; s < batches[m].size(); ++s) {
        const Batch& batch = batches[m][s];
        Times& times = times_[m][s];
        times.rates.push_back(static_cast<double>(batch.tokens) / batch.seconds);
        times.decode_rates.push_back(rate(batch));
        if (rate(batches[0][s]) > 0) times.speedups.push_back(rate(batch) / rate(batches[0][s]));
        for (const GenerationResult& result : batch.results) times.Add(result);
      }
    }
  }

  std::span<const BatchMethod> methods_;
  std::span<const GenerationRequest> requests_;
  const BatchOptions& options_;
  std::vector<std::vector<int32_t>> expected_;  // by request
  std::vector<std::vector<Times>> times_;       // by method, then as the numbers
  int64_t done_ = 0;
  double total_ = 1;
};

}  // namespace

BatchResult MeasureBatches(std::span<const BatchMethod> methods, std::span<const GenerationRequest> requests,
                           const BatchOptions& options) {
  return BatchRunner(methods, requests, options).Run();
}

}  // namespace hydrant::eval
