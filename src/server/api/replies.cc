// SPDX-License-Identifier: Apache-2.0
#include "server/api/replies.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace hydrant::server {
namespace {

using base::Json;

Json HeaderJson(const ReplyHeader& header, bool is_chunk) {
  const bool is_chat = header.kind == ApiKind::kChat;
  const char* const object = !is_chat ? "text_completion" : is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", header.id}, {"object", object}, {"created", header.created}, {"model", header.model}};
}

// Of one choice in one event.
Json ChunkJson(const ReplyHeader& header, Json choice) {
  Json json = HeaderJson(header, /*is_chunk=*/true);
  json["choices"] = Json::array({std::move(choice)});
  return json;
}

Json LogprobsJson(const ApiRequest& request, const GenerationResult& result, const Echo& echo,
                  const BytesOf& bytes_of) {
  if (request.generation.num_logprobs < 0) return nullptr;
  if (request.kind == ApiKind::kChat) return ChatLogprobs(result.token_ids, result.logprobs, bytes_of);
  std::vector<int32_t> tokens = echo.token_ids;
  std::vector<TokenLogprobs> logprobs = echo.logprobs;
  tokens.insert(tokens.end(), result.token_ids.begin(), result.token_ids.end());
  logprobs.insert(logprobs.end(), result.logprobs.begin(), result.logprobs.end());
  int64_t offset = 0;
  return CompletionLogprobs(tokens, logprobs, bytes_of, echo.text + result.text, offset);
}

Json ChoiceJson(const ApiRequest& request, int32_t index, const GenerationResult& result, const Echo& echo,
                const BytesOf& bytes_of) {
  Json json = {{"index", index},
               {"finish_reason", FinishReasonOf(result)},
               {"logprobs", LogprobsJson(request, result, echo, bytes_of)}};
  if (request.kind == ApiKind::kChat) {
    json["message"] = {{"role", "assistant"}, {"content", result.text}, {"refusal", nullptr}};
  } else {
    json["text"] = echo.text + result.text;
  }
  if (request.return_token_ids) json["token_ids"] = result.token_ids;
  return json;
}

// What one event adds to a choice.
Json DeltaJson(const ReplyHeader& header, int32_t choice, std::string_view text) {
  Json json = {{"index", choice}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  if (header.kind == ApiKind::kChat) {
    json["delta"] = {{"content", text}};
  } else {
    json["text"] = text;
  }
  return json;
}

Json StepJson(const StepTree& step, const BytesOf& bytes_of) {
  Json texts = Json::array();
  for (const int32_t token : step.tokens) texts.push_back(bytes_of(token));
  return {{"parents", std::vector<int32_t>(step.parents.begin(), step.parents.end())},
          {"texts", std::move(texts)},
          {"accepted", std::vector<int32_t>(step.accepted.begin(), step.accepted.end())},
          {"source", NameOf(step.source)}};
}

void Add(std::vector<int64_t>& sums, const std::vector<int64_t>& values) {
  sums.resize(std::max(sums.size(), values.size()), 0);
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

}  // namespace

std::string_view FinishReasonOf(const GenerationResult& result) {
  switch (result.finish_reason) {
    case FinishReason::kEos:
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength:
    case FinishReason::kContext: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: break;
  }
  return "error";
}

Json UsageJson(const UsageCounts& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details",
           {{"accepted_prediction_tokens", usage.accepted_prediction},
            {"rejected_prediction_tokens", usage.rejected_prediction}}}};
}

Json SpeculationJson(std::span<const GenerationResult> results) {
  int64_t steps = 0, tokens = 0, drafted = 0, accepted = 0, looked_up = 0, given = 0, given_accepted = 0;
  std::vector<int64_t> offered, accepted_at;
  PhaseTimes times;
  for (const GenerationResult& result : results) {
    steps += static_cast<int64_t>(result.num_emitted.size());
    tokens += std::max<int64_t>(0, static_cast<int64_t>(result.token_ids.size()) - 1);
    drafted += result.num_drafted;
    accepted += result.num_accepted();
    looked_up += result.num_looked_up_accepted;
    given += result.num_given;
    given_accepted += result.num_given_accepted;
    Add(offered, result.depth_offered);
    Add(accepted_at, result.depth_accepted);
    times.prefill += result.phase_ms.prefill;
    times.draft += result.phase_ms.draft;
    times.forward += result.phase_ms.forward;
    times.verify += result.phase_ms.verify;
    times.commit += result.phase_ms.commit;
  }
  return {{"steps", steps},
          {"tokens_per_step", steps == 0 ? 1.0 : static_cast<double>(tokens) / static_cast<double>(steps)},
          {"drafted_tokens", drafted},
          {"accepted_tokens", accepted},
          {"looked_up_tokens", looked_up},
          {"given_tokens", given},
          {"given_accepted_tokens", given_accepted},
          {"offered_per_depth", offered},
          {"accepted_per_depth", accepted_at},
          {"ms",
           {{"prefill", times.prefill},
            {"draft", times.draft},
            {"forward", times.forward},
            {"verify", times.verify},
            {"commit", times.commit}}}};
}

Json ReplyJson(const ReplyHeader& header, const ApiRequest& request, std::span<const GenerationResult> results,
               std::span<const Echo> echoes, const UsageCounts& usage, const BytesOf& bytes_of) {
  Json json = HeaderJson(header, /*is_chunk=*/false);
  json["choices"] = Json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    json["choices"].push_back(ChoiceJson(request, static_cast<int32_t>(i), results[i], echoes[i], bytes_of));
  }
  json["usage"] = UsageJson(usage);
  json["seed"] = header.seed;
  json["speculation"] = SpeculationJson(results);
  return json;
}

std::string EventText(const Json& json) { return "data: " + base::DumpJson(json) + "\n\n"; }

Json EchoEvent(const ReplyHeader& header, int32_t choice, std::string_view text) {
  return ChunkJson(header, DeltaJson(header, choice, text));
}

Json TextEvent(const ReplyHeader& header, int32_t choice, const Emission& emission, const ApiRequest& request,
               const BytesOf& bytes_of, int64_t& offset) {
  Json json = DeltaJson(header, choice, emission.text);
  if (request.generation.num_logprobs >= 0) {
    json["logprobs"] = header.kind == ApiKind::kChat
                           ? ChatLogprobs(emission.token_ids, emission.logprobs, bytes_of)
                           : CompletionLogprobs(emission.token_ids, emission.logprobs, bytes_of, emission.text, offset);
  }
  if (request.return_token_ids) {
    json["token_ids"] = std::vector<int32_t>(emission.token_ids.begin(), emission.token_ids.end());
  }
  if (request.include_speculation) {
    Json list = Json::array();
    for (size_t i = 0; i < emission.token_ids.size(); ++i) {
      list.push_back({{"id", emission.token_ids[i]},
                      {"text", i < emission.token_text.size() ? emission.token_text[i] : ""},
                      {"depth", emission.token_depth[i]},
                      {"source", NameOf(emission.token_source[i])}});
    }
    json["speculation"] = {{"tokens", std::move(list)}};
    if (emission.step != nullptr) json["speculation"]["step"] = StepJson(*emission.step, bytes_of);
  }
  return ChunkJson(header, std::move(json));
}

Json RoleEvent(const ReplyHeader& header, int32_t choice) {
  return ChunkJson(header, {{"index", choice},
                            {"delta", {{"role", "assistant"}, {"content", ""}}},
                            {"logprobs", nullptr},
                            {"finish_reason", nullptr}});
}

Json FinishEvent(const ReplyHeader& header, int32_t choice, const GenerationResult& result) {
  Json json = {{"index", choice}, {"finish_reason", FinishReasonOf(result)}, {"logprobs", nullptr}};
  if (header.kind == ApiKind::kChat) {
    json["delta"] = Json::object();
  } else {
    json["text"] = "";
  }
  return ChunkJson(header, std::move(json));
}

Json UsageEvent(const ReplyHeader& header, const UsageCounts& usage, std::span<const GenerationResult> results) {
  Json json = HeaderJson(header, /*is_chunk=*/true);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(usage);
  json["seed"] = header.seed;
  json["speculation"] = SpeculationJson(results);
  return json;
}

}  // namespace hydrant::server
