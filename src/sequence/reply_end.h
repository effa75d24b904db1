// SPDX-License-Identifier: Apache-2.0
// When a reply is over, and its text so far.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hydrant/generation.h"
#include "sequence/text_collector.h"

namespace hydrant::sequence {

struct EndRules {
  StopOptions stop = {};
  std::vector<int32_t> eos_token_ids = {};  // all of them: `stop` is not asked for any
  int32_t max_positions = 0;                // of prompt and reply together
};

class ReplyEnd {
 public:
  // `tokenizer` as of TextCollector. `prompt`: tokens before the reply.
  ReplyEnd(EndRules rules, size_t prompt, const tokenizer::Tokenizer* tokenizer);

  // Adds the next token. Why the reply ends with it; nothing: it goes on.
  std::optional<FinishReason> Push(int32_t token);
  // The reply is over, by these rules or by somebody's wish.
  void Close() { text_.Close(); }

  const TextCollector& text() const { return text_; }

 private:
  EndRules rules_;
  size_t num_tokens_;  // of prompt and reply
  TextCollector text_;
};

}  // namespace hydrant::sequence
