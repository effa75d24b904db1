// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a chat or a completion: a typed error with a status of 400 and a name for the field, or a
// request whose settings are in range.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "hydrant/error.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"

namespace {

using hydrant::server::ApiKind;
using hydrant::server::ApiRequest;

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckRanges(const ApiRequest& request) {
  const hydrant::GenerationRequest& generation = request.generation;
  Check(request.n >= 1 && request.n <= 128);
  Check(request.max_tokens.value_or(1) >= 0);
  Check(generation.sampling.temperature >= 0 && generation.sampling.top_k >= 0);
  Check(generation.sampling.top_p >= 0 && generation.sampling.top_p <= 1);
  Check(generation.num_logprobs >= -1 && generation.num_logprobs <= 20);
  Check(LeastMatch(generation.lookup) <= MostMatch(generation.lookup) && MostMatch(generation.lookup) <= 64);
  Check(!generation.score_prompt || generation.num_logprobs >= 0);
  const hydrant::BeamOptions& beam = generation.beam;
  Check(beam.width >= 1 && beam.length >= 2 && beam.width * (beam.length - 1) <= 511);
  Check(generation.tree.find('/') == std::string::npos);
  Check(request.kind == ApiKind::kChat ? !request.messages.empty() : !request.prompts.empty());
  for (const int32_t id : generation.draft_ids) Check(id >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const ApiKind kind : {ApiKind::kChat, ApiKind::kCompletion}) {
    for (const bool allow_unknown : {false, true}) {
      try {
        const hydrant::base::Json body = hydrant::base::ParseJson(text, "the request's body");
        CheckRanges(ParseApiRequest(kind, body, {.generation = {}, .allow_unknown = allow_unknown}));
      } catch (const hydrant::UserError&) {
      } catch (const hydrant::server::ApiError& error) {
        Check(error.status() == 400);
        static_cast<void>(hydrant::base::ParseJson(error.Body(), "the error"));
      }
    }
  }
  return 0;
}
