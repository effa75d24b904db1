// SPDX-License-Identifier: Apache-2.0
// Results and emissions as OpenAI's JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "server/api/api_request.h"
#include "server/api/logprobs_json.h"

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

// The prompt of a choice, where it is shown before the reply.
struct Echo {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;  // of the tokens but the first; empty: not asked for
};

// The whole reply. `results` and `echoes` in order of choice.
base::Json ReplyJson(const ReplyHeader& header, const ApiRequest& request, std::span<const GenerationResult> results,
                     std::span<const Echo> echoes, const UsageCounts& usage, const BytesOf& bytes_of);

// An event of a stream, as SSE has it: "data: {...}\n\n".
std::string EventText(const base::Json& json);
inline constexpr const char* kLastEvent = "data: [DONE]\n\n";

// The prompt of a choice.
base::Json EchoEvent(const ReplyHeader& header, int32_t choice, std::string_view text);
// One step's text of a choice. `offset`: characters of the text before it; those of its tokens are added, where log
// probabilities are asked for. A chat's first event has the role.
base::Json TextEvent(const ReplyHeader& header, int32_t choice, const Emission& emission, const ApiRequest& request,
                     const BytesOf& bytes_of, int64_t& offset);
base::Json RoleEvent(const ReplyHeader& header, int32_t choice);
// The end of a choice.
base::Json FinishEvent(const ReplyHeader& header, int32_t choice, const GenerationResult& result);
// The last event before [DONE], with no choices.
base::Json UsageEvent(const ReplyHeader& header, const UsageCounts& usage, std::span<const GenerationResult> results);

}  // namespace hydrant::server
