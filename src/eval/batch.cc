// SPDX-License-Identifier: Apache-2.0
#include "eval/batch.h"

#include <algorithm>
#include <chrono>
#include <exception>
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

// As Engine::GenerateBatch, with callbacks that tell when each sequence has its first token.
Batch RunBatch(Engine& engine, std::span<const GenerationRequest> requests, bool use_drafter) {
  Batch batch;
  batch.results.resize(requests.size());
  std::vector<int64_t> emitted(requests.size(), 0);
  size_t open = 0, begun = 0;
  const Clock::time_point begin = Clock::now();
  Clock::time_point decoding = begin;
  int64_t before = 0;  // tokens that were there when the last sequence began
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerationRequest request = requests[i];
    request.use_drafter = use_drafter;
    RequestCallbacks callbacks;
    callbacks.on_emit = [&, i](const Emission& emission) {
      if (emission.token_ids.empty()) return true;
      batch.tokens += static_cast<int64_t>(emission.token_ids.size());
      if (std::exchange(emitted[i], 1) == 0 && ++begun == requests.size()) {
        decoding = Clock::now();
        before = batch.tokens;
      }
      return true;
    };
    callbacks.on_done = [&, i](GenerationResult result) {
      batch.results[i] = std::move(result);
      --open;
    };
    engine.Submit(request, std::move(callbacks));
    ++open;
  }
  while (open > 0) engine.Step();
  const Clock::time_point end = Clock::now();
  for (const GenerationResult& result : batch.results) {
    if (result.error) std::rethrow_exception(result.error);
  }
  batch.seconds = std::chrono::duration<double>(end - begin).count();
  batch.decode_seconds = std::chrono::duration<double>(end - decoding).count();
  batch.decode_tokens = batch.tokens - before;
  return batch;
}

// What one method and number have come to, round by round.
struct Times {
  std::vector<double> rates, decode_rates, speedups;
  double tokens = 0, steps = 0;
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
      for (size_t s = 0; s < own.size(); ++s) {
        rows.push_back({.sequences = options_.sequences[s],
                        .tokens_per_second = SpreadOf(own[s].rates),
                        .decode_tokens_per_second = SpreadOf(own[s].decode_rates),
                        .speedup = SpreadOf(own[s].speedups),
                        .tokens_per_step = own[s].steps > 0 ? own[s].tokens / own[s].steps : 1});
      }
    }
    return result;
  }

 private:
  bool GoesOn() { return !options_.on_progress || options_.on_progress(static_cast<double>(++done_) / total_); }

  // The texts that are expected. False: stopped.
  bool RunAlone() {
    for (const GenerationRequest& request : requests_) {
      const Batch alone = RunBatch(*methods_.front().engine, std::span(&request, 1), methods_.front().use_drafter);
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
        Batch batch = RunBatch(*methods_[m].engine, requests_.first(count), methods_[m].use_drafter);
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
        for (const GenerationResult& result : batch.results) {
          times.tokens += static_cast<double>(result.token_ids.size()) - 1;
          times.steps += static_cast<double>(result.num_emitted.size());
        }
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
