// SPDX-License-Identifier: Apache-2.0
#include "server/api/api_request.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/json.h"
#include "server/api/api_error.h"
#include "server/api/fields.h"

namespace hydrant::server {
namespace {

using base::Json;

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostChoices = 128;
constexpr size_t kMostPrompts = 1024;
constexpr int64_t kMostLogprobs = 20;  // of a token: OpenAI's for chats

void ReadSampling(Fields& fields, ApiRequest& request) {
  SamplingOptions& sampling = request.generation.sampling;
  const auto number = [&](const char* name, double min, double max, float& target) {
    if (const auto value = fields.Number(name, min, max)) target = static_cast<float>(*value);
  };
  number("temperature", 0, 100, sampling.temperature);
  number("top_p", 0, 1, sampling.top_p);
  number("min_p", 0, 1, sampling.min_p);
  number("presence_penalty", -100, 100, sampling.presence_penalty);
  number("frequency_penalty", -100, 100, sampling.frequency_penalty);
  number("repetition_penalty", 1e-3, 1000, sampling.repetition_penalty);
  // -1 turns it off in vLLM, 0 here and in llama.cpp.
  if (const auto top_k = fields.Integer("top_k", -1, kMostTokens)) {
    sampling.top_k = static_cast<int32_t>(std::max<int64_t>(0, *top_k));
  }
  if (const auto seed = fields.Seed("seed")) {
    sampling.seed = *seed;
    request.has_seed = true;
  }
}

void ReadStop(Fields& fields, ApiRequest& request) {
  StopOptions& stop = request.generation.stop;
  if (const Json* const value = fields.Find("stop")) {
    const Json list = value->is_array() ? *value : Json::array({*value});
    for (const Json& text : list) {
      if (!text.is_string()) fields.Fail("stop", "a string, or a list of strings");
      stop.stop.push_back(text.get<std::string>());
    }
  }
  stop.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  const int64_t least = request.kind == ApiKind::kCompletion ? 0 : 1;
  if (const auto most = fields.Integer("max_tokens", least, kMostTokens)) {
    request.max_tokens = static_cast<int32_t>(*most);
  }
  if (request.kind == ApiKind::kCompletion) return;
  if (const auto most = fields.Integer("max_completion_tokens", 1, kMostTokens)) {
    if (request.max_tokens.value_or(static_cast<int32_t>(*most)) != *most) {
      throw ApiError(400, "'max_tokens' and 'max_completion_tokens' differ: give one of them", "max_completion_tokens");
    }
    request.max_tokens = static_cast<int32_t>(*most);
  }
}

void ReadLookup(Fields& own, LookupOptions& lookup) {
  if (const auto tokens = own.Integer("lookup", 0, 64)) lookup.max_tokens = static_cast<int32_t>(*tokens);
  if (const auto rule = own.String("lookup_rule")) {
    if (*rule != "last" && *rule != "first") own.Fail("lookup_rule", "\"last\" or \"first\"");
    lookup.rule = *rule == "first" ? LookupRule::kFirst : LookupRule::kLast;
  }
  if (const auto match = own.Integer("lookup_min", 1, 64)) lookup.min_match = static_cast<int32_t>(*match);
  if (const auto match = own.Integer("lookup_max_match", 1, 64)) lookup.max_match = static_cast<int32_t>(*match);
  if (LeastMatch(lookup) > MostMatch(lookup)) {
    // The other one may be the server's.
    if (own.Find("lookup_max_match") == nullptr) {
      own.Fail("lookup_min", fmt::format("{} at most, as 'lookup_max_match' is", lookup.max_match));
    }
    own.Fail("lookup_max_match", fmt::format("{} at least, as 'lookup_min' is", lookup.min_match));
  }
  for (const char* field : {"lookup_rule", "lookup_min", "lookup_max_match"}) {
    if (lookup.max_tokens == 0 && own.Find(field) != nullptr) own.Fail(field, "'lookup' above 0 beside it");
  }
}

// One of them without a tree names that of beams.
void ReadBeams(Fields& own, GenerationRequest& generation) {
  const auto width = own.Integer("beam_width", 1, 50), length = own.Integer("beam_length", 2, 65);
  if (!width && !length) return;
  BeamOptions& beam = generation.beam;
  if (width) beam.width = static_cast<int32_t>(*width);
  if (length) beam.length = static_cast<int32_t>(*length);
  if (constexpr int32_t kMostDrafts = 511; beam.width * (beam.length - 1) > kMostDrafts) {
    own.Fail(width ? "beam_width" : "beam_length",
             fmt::format("{} drafted tokens at most by 'beam_width' * ('beam_length' - 1)", kMostDrafts));
  }
}

// Fields of grown trees say which tree, where none is named; beside another one they would change nothing.
void ReadGrownTree(Fields& own, GenerationRequest& generation) {
  const auto bound = [&](const char* name, int64_t most, int32_t& target) {
    if (const auto given = own.Integer(name, 1, most)) target = static_cast<int32_t>(*given);
  };
  bound("draft_nodes", 511, generation.dynamic.nodes);
  bound("draft_depth", 64, generation.dynamic.depth);
  bound("draft_width", 64, generation.dynamic.width);
  ReadBeams(own, generation);
  const bool is_named = own.Find("tree") != nullptr;
  const auto belongs_to = [&](std::initializer_list<const char*> names, const char* tree) {
    for (const char* name : names) {
      if (own.Find(name) == nullptr) continue;
      if (!is_named && (generation.tree.empty() || generation.tree == tree)) generation.tree = tree;
      if (generation.tree == tree) continue;
      throw ApiError(
          400,
          fmt::format("'speculation.{}' is of the tree \"{}\", and this one is \"{}\"", name, tree, generation.tree),
          fmt::format("speculation.{}", name));
    }
  };
  belongs_to({"draft_nodes", "draft_width"}, "dynamic");
  belongs_to({"beam_width", "beam_length"}, "beam");
  if (own.Find("draft_depth") == nullptr) return;
  if (generation.tree.empty()) {
    generation.draft_depth = generation.dynamic.depth;  // a chain, unless the server's own tree is dynamic
  } else {
    belongs_to({"draft_depth"}, "dynamic");
  }
}

void ReadSpeculation(Fields& fields, GenerationRequest& generation) {
  const Json* const value = fields.Find("speculation");
  if (value == nullptr) return;
  Fields own(*value, "speculation.");
  if (const auto enabled = own.Bool("enabled")) generation.use_drafter = *enabled;
  if (const auto tree = own.String("tree")) {
    // A name with a path would be read as a file of this machine.
    if (tree->empty() || tree->find_first_of("/.\\") != std::string::npos)
      own.Fail("tree", "a preset's name, \"auto\", \"dynamic\", \"beam\" or a list of paths");
    generation.tree = *tree;
  }
  ReadGrownTree(own, generation);
  if (const auto nodes = own.Integer("max_nodes", 0, kMostTokens)) generation.max_nodes = static_cast<int32_t>(*nodes);
  ReadLookup(own, generation.lookup);
  if (const auto p_min = own.Number("draft_p_min", 0, 1)) generation.draft_p_min = static_cast<float>(*p_min);
  if (const auto rule = own.String("accept")) {
    constexpr AcceptRule kRules[] = {AcceptRule::kExact, AcceptRule::kTypical, AcceptRule::kRejection};
    const auto* const named = std::ranges::find(kRules, *rule, [](AcceptRule one) { return NameOf(one); });
    if (named == std::end(kRules)) own.Fail("accept", "\"exact\", \"typical\" or \"rejection\"");
    generation.accept.rule = *named;
  }
  if (const auto epsilon = own.Number("epsilon", 0, 1)) {
    generation.accept.epsilon = static_cast<float>(*epsilon);
    generation.accept.alpha = std::sqrt(generation.accept.epsilon);
  }
  if (const auto alpha = own.Number("alpha", 0, 1e6)) generation.accept.alpha = static_cast<float>(*alpha);
  for (const char* name : {"epsilon", "alpha"}) {
    if (own.Find(name) == nullptr || generation.accept.rule == AcceptRule::kTypical) continue;
    throw ApiError(400,
                   fmt::format("'speculation.{}' is for typical acceptance only: add \"accept\": \"typical\"", name),
                   fmt::format("speculation.{}", name));
  }
  own.CheckNoOthers();
}

void ReadStream(Fields& fields, ApiRequest& request) {
  request.stream = fields.Bool("stream").value_or(false);
  const Json* const options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!request.stream) throw ApiError(400, "'stream_options' needs 'stream': true", "stream_options");
  Fields own(*options, "stream_options.");
  request.include_usage = own.Bool("include_usage").value_or(false);
  request.include_speculation = own.Bool("include_speculation").value_or(false);
  own.Ignore({"include_obfuscation"});
  own.CheckNoOthers();
}

// A string, or a list of parts of type "text".
std::string ContentOf(const Json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  std::string text;
  if (!value.is_array()) {
    throw ApiError(400, fmt::format("'{}' is no string and no list of parts", name), name);
  }
  for (const Json& part : value) {
    Fields fields(part, name + "[].");
    if (fields.String("type") != "text") {
      throw ApiError(400, fmt::format("'{}' has a part that is no text, and this server reads text alone", name), name,
                     "unsupported_parameter");
    }
    const std::optional<std::string> own = fields.String("text");
    if (!own) throw ApiError(400, fmt::format("'{}' has a part of type text without a text", name), name);
    fields.CheckNoOthers();
    text += *own;
  }
  return text;
}

ChatMessage MessageOf(const Json& value, size_t index) {
  const std::string path = fmt::format("messages[{}].", index);
  Fields fields(value, path);
  ChatMessage message;
  message.role = fields.String("role").value_or("");
  if (message.role == "developer") message.role = "system";
  if (message.role != "system" && message.role != "user" && message.role != "assistant") {
    throw ApiError(400,
                   fmt::format("'{}role' is \"{}\", expected system, developer, user or assistant", path, message.role),
                   path + "role");
  }
  const Json* const content = fields.Find("content");
  if (content == nullptr) throw ApiError(400, fmt::format("'{}content' is missing", path), path + "content");
  message.content = ContentOf(*content, path + "content");
  fields.Ignore({"name", "refusal", "annotations"});
  fields.Refuse("tool_calls", {Json::array()});
  fields.Refuse("audio", {});
  fields.CheckNoOthers();
  return message;
}

void ReadMessages(Fields& fields, ApiRequest& request) {
  const Json* const messages = fields.Find("messages");
  if (messages == nullptr) throw ApiError(400, "'messages' is missing", "messages");
  if (!messages->is_array() || messages->empty()) fields.Fail("messages", "a list of messages, one at least");
  for (size_t i = 0; i < messages->size(); ++i) request.messages.push_back(MessageOf((*messages)[i], i));
}

void ReadPrompts(Fields& fields, ApiRequest& request) {
  const Json* const prompt = fields.Find("prompt");
  if (prompt == nullptr) throw ApiError(400, "'prompt' is missing", "prompt");
  if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty()) fields.Fail("prompt", "a text, a list of token ids, or a list of those");
  if (prompt->front().is_number()) {
    request.prompts.emplace_back(IdList(*prompt, "prompt"));
    return;
  }
  if (prompt->size() > kMostPrompts) {
    throw ApiError(400, fmt::format("'prompt' has {} prompts, expected {} at most", prompt->size(), kMostPrompts),
                   "prompt");
  }
  for (const Json& one : *prompt) {
    if (one.is_string()) {
      request.prompts.emplace_back(one.get<std::string>());
    } else {
      request.prompts.emplace_back(IdList(one, "prompt"));
    }
  }
}

// What changes nothing here, and what cannot be done.
void ReadTheRest(Fields& fields, ApiRequest& request) {
  fields.Ignore(
      {"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"});
  fields.Refuse("logit_bias", {Json::object()});
  if (request.kind == ApiKind::kChat) {
    fields.Refuse("tools", {Json::array()});
    fields.Refuse("tool_choice", {"none", "auto"});
    fields.Refuse("functions", {Json::array()});
    fields.Refuse("function_call", {"none", "auto"});
    fields.Refuse("response_format", {{{"type", "text"}}});
    fields.Refuse("modalities", {{"text"}});
    fields.Refuse("audio", {});
    fields.Refuse("reasoning_effort", {});
  } else {
    fields.Refuse("suffix", {""});
    fields.Refuse("best_of", {1, request.n});
  }
}

// A chat asks for them and for how many, a completion for how many, which may be none.
void ReadLogprobs(Fields& fields, ApiRequest& request) {
  if (request.kind == ApiKind::kCompletion) {
    request.echo = fields.Bool("echo").value_or(false);
    const auto count = fields.Integer("logprobs", 0, kMostLogprobs);
    if (!count) return;
    request.generation.num_logprobs = static_cast<int32_t>(*count);
    request.generation.score_prompt = request.echo;
    if (request.echo && request.stream) {
      throw ApiError(400, "'echo' with 'logprobs' is not streamed: leave 'stream' out", "stream",
                     "unsupported_parameter");
    }
    return;
  }
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const auto count = fields.Integer("top_logprobs", 0, kMostLogprobs);
  if (count.value_or(0) > 0 && !wanted) {
    throw ApiError(400, "'top_logprobs' needs 'logprobs': true", "top_logprobs");
  }
  if (wanted) request.generation.num_logprobs = static_cast<int32_t>(count.value_or(0));
}

// Guesses of the client: a text that the reply may be like, or the reply's first tokens.
void ReadGuesses(Fields& fields, ApiRequest& request) {
  if (const Json* const prediction = fields.Find("prediction")) {
    Fields own(*prediction, "prediction.");
    if (own.String("type") != "content") {
      throw ApiError(400, "'prediction.type' is no \"content\", and no other is known", "prediction.type");
    }
    const Json* const content = own.Find("content");
    if (content == nullptr) throw ApiError(400, "'prediction.content' is missing", "prediction.content");
    request.prediction = ContentOf(*content, "prediction.content");
    own.CheckNoOthers();
  }
  if (request.kind != ApiKind::kCompletion) return;
  const auto draft = fields.Ids("draft_token_ids");
  if (!draft) return;
  if (request.prompts.size() > 1) {
    throw ApiError(400, "'draft_token_ids' belongs to one prompt, and there are several", "draft_token_ids");
  }
  request.generation.draft_ids = *draft;
}

}  // namespace

ApiRequest ParseApiRequest(ApiKind kind, const Json& body, const ApiDefaults& defaults) {
  Fields fields(body);
  ApiRequest request;
  request.kind = kind;
  request.generation = defaults.generation;
  request.model = fields.String("model").value_or("");
  if (kind == ApiKind::kChat) {
    ReadMessages(fields, request);
  } else {
    ReadPrompts(fields, request);
  }
  ReadSampling(fields, request);
  ReadStop(fields, request);
  ReadSpeculation(fields, request.generation);
  ReadStream(fields, request);
  ReadLogprobs(fields, request);
  ReadGuesses(fields, request);
  request.n = static_cast<int32_t>(fields.Integer("n", 1, kMostChoices).value_or(1));
  request.return_token_ids = fields.Bool("return_token_ids").value_or(false);
  ReadTheRest(fields, request);
  if (!defaults.allow_unknown) fields.CheckNoOthers();
  return request;
}

uint64_t SeedOfChoice(uint64_t seed, int32_t choice) {
  return seed + static_cast<uint64_t>(choice) * 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio: far apart
}

}  // namespace hydrant::server
