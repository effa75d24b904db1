// SPDX-License-Identifier: Apache-2.0
#include "sequence/reply_end.h"

#include <algorithm>
#include <utility>

namespace hydrant::sequence {

ReplyEnd::ReplyEnd(EndRules rules, size_t prompt, const tokenizer::Tokenizer* tokenizer)
    : rules_(std::move(rules)), num_tokens_(prompt), text_(tokenizer, rules_.stop.stop) {}

std::optional<FinishReason> ReplyEnd::Push(int32_t token) {
  ++num_tokens_;
  if (!rules_.stop.ignore_eos && std::ranges::find(rules_.eos_token_ids, token) != rules_.eos_token_ids.end()) {
    text_.PushSilent();
    return FinishReason::kEos;
  }
  if (text_.Push(token)) return FinishReason::kStop;
  if (text_.num_tokens() >= rules_.stop.max_tokens) return FinishReason::kLength;
  if (num_tokens_ >= static_cast<size_t>(rules_.max_positions)) return FinishReason::kContext;
  return std::nullopt;
}

}  // namespace hydrant::sequence
