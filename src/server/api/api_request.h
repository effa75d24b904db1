// SPDX-License-Identifier: Apache-2.0
// The bodies of /v1/chat/completions and /v1/completions: OpenAI's fields, those of other servers where clients send
// them (top_k, min_p, repetition_penalty, ignore_eos, return_token_ids), and our own (`speculation`,
// `draft_token_ids`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json_fwd.h"
#include "hydrant/engine.h"
#include "hydrant/generation.h"

namespace hydrant::server {

enum class ApiKind : uint8_t { kChat, kCompletion };

// What a request gets where it says nothing.
struct ApiDefaults {
  GenerationRequest generation;  // sampling, acceptance, drafting; max_tokens aside
  bool allow_unknown = false;    // fields that nobody knows are left alone
};

using ApiPrompt = std::variant<std::string, std::vector<int32_t>>;

struct ApiRequest {
  ApiKind kind = ApiKind::kCompletion;
  std::string model;                  // empty: the one that is served
  std::vector<ChatMessage> messages;  // of a chat
  std::vector<ApiPrompt> prompts;     // of completions, 1 at least
  GenerationRequest generation;       // prompt, prediction and stop.max_tokens aside
  std::string prediction;             // what the reply may say; empty: no guess
  std::optional<int32_t> max_tokens;
  bool has_seed = false;  // else the server chooses one
  int32_t n = 1;          // choices for each prompt
  bool stream = false;
  bool include_usage = false;        // a last event with the usage
  bool include_speculation = false;  // what each step drafted, in each event
  bool echo = false;                 // the prompt before the text
  bool return_token_ids = false;
};

// Throws ApiError for what is malformed, out of range, unknown or not to be honoured.
ApiRequest ParseApiRequest(ApiKind kind, const base::Json& body, const ApiDefaults& defaults);

// The seed of choice c of a request: the request's own for choice 0.
uint64_t SeedOfChoice(uint64_t seed, int32_t choice);

}  // namespace hydrant::server
