// SPDX-License-Identifier: Apache-2.0
// Results and emissions as OpenAI's JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "server/api/api_request.h"

namespace hydrant::server {

// What all objects of one reply have in common.
struct ReplyHeader {
  ApiKind kind = ApiKind::kCompletion;
  std::string id;       // "chatcmpl-..."
  std::string model;    // as it is served
  int64_t created = 0;  // seconds since 1970
  uint64_t seed = 0;    // in use
};

// Tokens of a reply's prompts and choices.
struct UsageCounts {
  int64_t prompt = 0, cached = 0, completion = 0;
  int64_t accepted_prediction = 0, rejected_prediction = 0;  // of the request's `prediction` alone
};

// "stop" or "length"; "error" for what ended by neither.
std::string_view FinishReasonOf(const GenerationResult& result);

base::Json UsageJson(const UsageCounts& usage);
// Steps, tokens per step, accepted per depth and milliseconds per phase of all `results` together.
base::Json SpeculationJson(std::span<const GenerationResult> results);

// The whole reply. `results` in order of choice.
base::Json ReplyJson(const ReplyHeader& header, const ApiRequest& request, std::span<const GenerationResult> results,
                     std::span<const std::string> echoes, const UsageCounts& usage);

// An event of a stream, as SSE has it: "data: {...}\n\n".
std::string EventText(const base::Json& json);
inline constexpr const char* kLastEvent = "data: [DONE]\n\n";

// The text of one token.
using TextOf = std::function<std::string(int32_t token)>;

// One step's text of a choice; `tokens` may be null, and `text_of` is not asked then. A chat's first event has the
// role.
base::Json TextEvent(const ReplyHeader& header, int32_t choice, std::string_view text, const Emission* tokens,
                     const ApiRequest& request, const TextOf& text_of);
base::Json RoleEvent(const ReplyHeader& header, int32_t choice);
// The end of a choice.
base::Json FinishEvent(const ReplyHeader& header, int32_t choice, const GenerationResult& result);
// The last event before [DONE], with no choices.
base::Json UsageEvent(const ReplyHeader& header, const UsageCounts& usage, std::span<const GenerationResult> results);

}  // namespace hydrant::server
