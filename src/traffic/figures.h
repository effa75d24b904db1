// SPDX-License-Identifier: Apache-2.0
// What the replies of a run come to, and whether two ways of asking gave the same texts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "traffic/load.h"
#include "traffic/summary.h"

namespace hydrant::traffic {

// Over all runs that are given; times in milliseconds, of replies that came whole.
struct Figures {
  int64_t num_replies = 0;  // whole ones
  int64_t num_failed = 0, num_dropped = 0;
  std::map<std::string, int64_t> errors;  // "status 429", "timeout" and so on
  std::string first_problem;              // of the first that failed, in one sentence
  int64_t num_prompt_tokens = 0, num_tokens = 0;
  bool has_usage = true;       // false: for a reply the events were counted in place of tokens
  double seconds = 0;          // of all runs together
  double cpu_share = 0;        // of one core, by the client; the largest of a run
  Summary first_token;         // from when the request was due to its first text
  Summary per_token;           // of each reply: from its first text to its last, by its tokens but the first
  Summary between;             // gaps between events with text
  Summary whole;               // from when the request was due to the reply's end
  double tokens_per_step = 0;  // as Hydrant's servers say; 0: not said

  // Of whole replies, over `seconds`.
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(num_tokens) / seconds : 0; }
  double replies_per_second() const { return seconds > 0 ? static_cast<double>(num_replies) / seconds : 0; }
};

Figures FiguresOf(std::span<const LoadResult> runs);

// "status 429", "connection", "TLS", "timeout", "cut stream", "not the API's form", "error in the stream".
std::string KindOf(const Reply& reply);

// Are the texts of each prompt the same, whoever was asked and how?
class TextComparison {
 public:
  // Looks at the whole replies of a run; `way` names it in `first`.
  void Add(const std::string& way, const LoadResult& run);

  int64_t num_compared() const { return num_compared_; }    // with an earlier text of the same turn
  int64_t num_different() const { return num_different_; }  // of those
  // Which was the first, in one sentence; empty: none.
  const std::string& first() const { return first_; }

 private:
  struct Known {
    std::string text, way;
  };

  std::map<std::pair<int64_t, int32_t>, Known> known_;  // by the prompt's number and turn
  int64_t num_compared_ = 0, num_different_ = 0;
  std::string first_;
};

}  // namespace hydrant::traffic
