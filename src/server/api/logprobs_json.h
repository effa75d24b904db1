// SPDX-License-Identifier: Apache-2.0
// Log probabilities as OpenAI's JSON: a list of objects in chats, lists side by side in completions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "hydrant/generation.h"

namespace hydrant::server {

// What one token adds to a text; may be a part of a character.
using BytesOf = std::function<std::string(int32_t token)>;

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}. `logprobs`: one per token.
base::Json ChatLogprobs(std::span<const int32_t> tokens, std::span<const TokenLogprobs> logprobs,
                        const BytesOf& bytes_of);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. `logprobs`: one per token, or one fewer: then the first
// token, a prompt's, has none. `text`: that of the tokens, which may lack some: those of special tokens, of an end
// that a stop string has cut off, a space in front. `offset`: characters before it; its own are added.
base::Json CompletionLogprobs(std::span<const int32_t> tokens, std::span<const TokenLogprobs> logprobs,
                              const BytesOf& bytes_of, std::string_view text, int64_t& offset);

}  // namespace hydrant::server
