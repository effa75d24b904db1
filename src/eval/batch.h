// SPDX-License-Identifier: Apache-2.0
// Several sequences decoded together: how fast, and whether each has the text that it has alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/spread.h"
#include "hydrant/engine.h"

namespace hydrant::eval {

struct BatchMethod {
  std::string name;
  Engine* engine = nullptr;
  bool use_drafter = true;
  std::string tree = {};  // GenerationRequest::tree
};

struct BatchOptions {
  std::vector<int32_t> sequences = {1, 2, 4, 8, 16};
  // For each number n of `sequences`: false: the first n requests are decoded, all at once; true: all requests are, n
  // at a time, and where one ends the next begins.
  bool is_queue = false;
  int rounds = 3;
  std::function<bool(double share)> on_progress = {};  // after each batch; false: stop, with the rounds done
};

// Of one method and one number of sequences.
struct BatchRow {
  int32_t sequences = 0;
  Spread tokens_per_second;  // of all sequences, prompts included in the time
  // Tokens after the moment at which the last sequence had its first one, over the time from then on: the prompts are
  // read by then, as in llama-batched-bench's S_TG. Of a queue: tokens_per_second.
  Spread decode_tokens_per_second;
  Spread speedup;              // decode_tokens_per_second over the first method's, in the same round
  double tokens_per_step = 1;  // GenerationResult::tokens_per_step, over all steps
  double num_emitted = 1;      // as verified: the mean of GenerationResult::num_emitted
  double nodes_per_step = 0;   // drafted
  // Milliseconds of a step for all sequences that take part, as a sequence meets it: the mean over all steps of all.
  double draft_ms = 0, forward_ms = 0;
  double prompt_ms = 0;  // of a sequence, on average: the passes in which parts of its prompt were read
  std::string tree;      // TreeReport::chosen of the last request that drafted; empty: none did
};

struct BatchResult {
  std::vector<std::vector<BatchRow>> rows;  // by method, then as `sequences`
  int rounds = 0;                           // whole ones
};

// Generates requests together (BatchOptions::is_queue), by each method and for each number in turn: one round untimed,
// then the timed ones, each beginning with another method. `requests` are as many as the largest number, at least.
// Every text must be the one that the first method gives that request alone: an InternalError says where one is not.
// Throws UserError as Engine::Submit does.
BatchResult MeasureBatches(std::span<const BatchMethod> methods, std::span<const GenerationRequest> requests,
                           const BatchOptions& options);

}  // namespace hydrant::eval
