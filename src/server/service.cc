// SPDX-License-Identifier: Apache-2.0
#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <random>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "server/api/api_error.h"
#include "server/api/fields.h"
#include "server/job.h"
#include "server/page.h"

namespace hydrant::server {
namespace {

using base::Json;

// A text of more bytes for each position of the context is refused before it is tokenized, as the command line does it.
constexpr size_t kMostTokenBytes = 128;

// Of /tokenize: SentencePiece takes 230 bytes of memory for each.
constexpr size_t kMostTextBytes = size_t{1} << 20;

// Threads that read requests with a body: tokenizing takes long, and the network must not wait for it.
constexpr size_t kReaders = 2;

// Positions of the cache that a step's tree may need behind a text: more than any tree that is found by measuring has.
constexpr int32_t kTreeRoom = 128;

// Of what a client says of a request: its id, and whom it asks for.
constexpr size_t kMostIdBytes = 128, kMostForwarded = 256;

constexpr std::string_view kGet = "GET, HEAD", kPost = "POST";

struct Path {
  std::string_view path, methods;
};
// In metrics, whatever else clients ask for is one path, as they could ask for any number of them.
constexpr std::array<Path, 9> kPaths = {{{"/v1/chat/completions", kPost},
                                         {"/v1/completions", kPost},
                                         {"/v1/models", kGet},
                                         {"/tokenize", kPost},
                                         {"/detokenize", kPost},
                                         {"/health", kGet},
                                         {"/ready", kGet},
                                         {"/metrics", kGet},
                                         {"/", kGet}}};

// What a path that is not here, or not for that method, is answered with.
ApiError NoSuchPath(const HttpRequest& request) {
  const auto* const known = std::ranges::find(kPaths, request.path, &Path::path);
  if (known == kPaths.end()) return ApiError(404, fmt::format("there is no {} {}", request.method, request.path));
  return ApiError::WrongMethod(request.method, request.path, known->methods);
}

int64_t SecondsNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint64_t FreshSeed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random() >> 11;  // 53 bits: JavaScript's numbers hold it
}

Json BodyOf(const HttpRequest& request) {
  try {
    return base::ParseJson(request.body, "the request's body");
  } catch (const UserError& error) {
    throw ApiError(400, error.what());
  }
}

// What needs no key: whether the server lives, and the page, which asks for one itself.
bool IsOpen(const std::string& path) {
  return path == "/" || path.starts_with("/page/") || path == "/health" || path == "/ready";
}

// The page's file, as a browser is to take it: nothing from elsewhere, nothing inline.
HttpResponse PageReply(const PageFile& file) {
  const std::string_view kind = file.name.ends_with(".html")  ? "text/html"
                                : file.name.ends_with(".css") ? "text/css"
                                                              : "text/javascript";
  return {.content_type = std::string(kind) + "; charset=utf-8",
          .body = std::string(file.text),
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                       "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

HttpResponse JsonReply(const Json& json) { return {.body = base::DumpJson(json)}; }

}  // namespace

struct Service::Readers {
  boost::asio::thread_pool pool{kReaders};
};

Service::Service(Engine& engine, ServiceOptions options)
    : engine_(engine),
      options_(std::move(options)),
      started_(SecondsNow()),
      loop_(engine, [this] { EndLateJobs(); }),
      readers_(std::make_unique<Readers>()) {}

Service::~Service() = default;

void Service::Handle(const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
  ReplyRecord record{.id = RequestIdOf(request),
                     .forwarded_for = std::string(request.Header("x-forwarded-for").substr(0, kMostForwarded)),
                     .remote = request.remote,
                     .method = request.method,
                     .path = request.path};
  if (options_.log_requests) record.request_body = request.body;
  auto recorded = std::make_shared<RecordedExchange>(std::move(exchange), std::move(record),
                                                     [this](const ReplyRecord& ended) { OnReply(ended); });
  if (request.method != "POST") return Respond(request, recorded);
  boost::asio::post(readers_->pool, [this, request, recorded] { Respond(request, recorded); });
}

// The client's own id, where it can stand in a header and in a log; else a fresh one.
std::string Service::RequestIdOf(const HttpRequest& request) {
  const std::string_view own = request.Header("x-request-id");
  const bool is_fit = !own.empty() && own.size() <= kMostIdBytes &&
                      std::ranges::all_of(own, [](char c) { return c > ' ' && c <= '~'; });
  return is_fit ? std::string(own) : fmt::format("req-{:x}-{}", started_, ++last_id_);
}

void Service::Respond(const HttpRequest& request, const std::shared_ptr<RecordedExchange>& recorded) {
  try {
    const std::string key = KeyOf(request);
    recorded->Note([&](ReplyRecord& noted) { noted.key = key; });
    Answer(request, key, recorded);
  } catch (...) {
    recorded->Send(CurrentError().Response());
  }
}

void Service::OnReply(const ReplyRecord& record) {
  const bool is_known = std::ranges::find(kPaths, record.path, &Path::path) != kPaths.end();
  metrics_.CountReply(is_known ? record.path : "other", record.status);
  if (options_.on_reply) options_.on_reply(record);
}

std::string Service::KeyOf(const HttpRequest& request) const {
  if (options_.keys.empty() || IsOpen(request.path)) return "";
  const std::string* const name = options_.keys.Find(request.Header("authorization"));
  if (name == nullptr) {
    const bool has_one = !request.Header("authorization").empty();
    throw ApiError(401,
                   has_one ? "the API key is not one of this server's"
                           : "this server asks for an API key: Authorization: Bearer KEY",
                   "", "invalid_api_key");
  }
  return *name;
}

void Service::Answer(const HttpRequest& request, const std::string& key,
                     const std::shared_ptr<RecordedExchange>& exchange) {
  if (request.method == "GET" || request.method == "HEAD") return exchange->Send(Get(request));
  if (request.method != "POST") throw NoSuchPath(request);
  if (request.path == "/v1/chat/completions") return Complete(ApiKind::kChat, request, key, exchange);
  if (request.path == "/v1/completions") return Complete(ApiKind::kCompletion, request, key, exchange);
  if (request.path == "/tokenize") return exchange->Send(Tokenize(request));
  if (request.path == "/detokenize") return exchange->Send(Detokenize(request));
  throw NoSuchPath(request);
}

int32_t Service::num_open() const {
  const std::lock_guard lock(mutex_);
  return num_open_;
}

void Service::Take(const std::string& key, int32_t count) {
  const std::lock_guard lock(mutex_);
  int32_t& of_key = open_of_key_[key];
  const auto refuse = [&](int32_t open, int32_t most, const char* whose) {
    if (count > most) {
      throw ApiError(
          400, fmt::format("the request asks for {} sequences, and {} {}may run and wait", count, most, whose), "n");
    }
    if (open + int64_t{count} <= most) return;
    throw ApiError(429, fmt::format("{} sequences {}run or wait, and {} may: try again later", open, whose, most), "",
                   "queue_full");
  };
  refuse(num_open_, options_.max_open, "");
  refuse(of_key, options_.max_open_per_key, "of this key ");
  num_open_ += count;
  of_key += count;
}

void Service::GiveBack(const std::string& key) {
  const std::lock_guard lock(mutex_);
  --num_open_;
  --open_of_key_[key];
}

HttpResponse Service::Get(const HttpRequest& request) {
  for (const PageFile& file : PageFiles()) {
    const bool is_first = request.path == "/" && file.name == "index.html";
    if (is_first || request.path == "/page/" + std::string(file.name)) return PageReply(file);
  }
  if (request.path == "/health") return JsonReply({{"status", "ok"}});
  if (request.path == "/ready") {
    if (!is_ready_) throw ApiError(503, "the server is ending");
    return JsonReply({{"status", "ready"}});
  }
  if (request.path == "/metrics") {
    const int64_t connections = options_.num_connections ? options_.num_connections() : 0;
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_.Text({.engine = engine_.stats(), .connections = connections})};
  }
  const Json model = {{"id", options_.model_name},
                      {"object", "model"},
                      {"created", started_},
                      {"owned_by", "hydrant"},
                      {"max_model_len", engine_.info().max_positions},
                      {"has_chat_template", options_.template_name != "none"},
                      {"drafter", engine_.info().drafter},
                      {"num_heads", engine_.info().num_heads}};
  if (request.path == "/v1/models") return JsonReply({{"object", "list"}, {"data", Json::array({model})}});
  if (request.path == "/v1/models/" + options_.model_name) return JsonReply(model);
  if (request.path.starts_with("/v1/models/")) {
    throw ApiError(404, fmt::format("this server has '{}' alone", options_.model_name), "model", "model_not_found");
  }
  throw NoSuchPath(request);
}

HttpResponse Service::Tokenize(const HttpRequest& request) const {
  const Json body = BodyOf(request);
  Fields fields(body);
  fields.Ignore({"model"});
  const std::optional<std::string> text = fields.String("prompt");
  if (!text) throw ApiError(400, "'prompt' is missing", "prompt");
  if (text->size() > kMostTextBytes) {
    throw ApiError(400, fmt::format("'prompt' has {} bytes, expected {} at most", text->size(), kMostTextBytes),
                   "prompt");
  }
  const bool special = fields.Bool("parse_special").value_or(true);
  const std::vector<int32_t> ids = engine_.Tokenize(*text, special, fields.Bool("add_special_tokens").value_or(true));
  if (!options_.defaults.allow_unknown) fields.CheckNoOthers();
  return JsonReply({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", engine_.info().max_positions}});
}

HttpResponse Service::Detokenize(const HttpRequest& request) const {
  const Json body = BodyOf(request);
  Fields fields(body);
  fields.Ignore({"model"});
  const auto ids = fields.Ids("tokens");
  if (!ids) throw ApiError(400, "'tokens' is missing", "tokens");
  const bool skip = fields.Bool("skip_special_tokens").value_or(false);
  if (!options_.defaults.allow_unknown) fields.CheckNoOthers();
  return JsonReply({{"prompt", engine_.Detokenize(*ids, skip)}});
}

std::vector<std::vector<int32_t>> Service::PromptsOf(const ApiRequest& request) const {
  const auto positions = static_cast<size_t>(engine_.info().max_positions);
  const auto too_long = [&](const std::string& found) {
    return ApiError(
        400, fmt::format("This model's maximum context length is {} tokens, and the prompt has {}", positions, found),
        request.kind == ApiKind::kChat ? "messages" : "prompt", "context_length_exceeded");
  };
  const auto ids_of = [&](const std::string& text, bool add_bos) {
    if (text.size() > positions * kMostTokenBytes) throw too_long(fmt::format("{} bytes", text.size()));
    return engine_.Tokenize(text, /*parse_special=*/true, add_bos);
  };
  std::vector<std::vector<int32_t>> prompts;
  // One by one: a request with many long prompts is refused before the rest is tokenized.
  const auto add = [&](std::vector<int32_t> ids) {
    if (ids.size() >= positions) throw too_long(std::to_string(ids.size()));
    prompts.push_back(std::move(ids));
  };
  if (request.kind == ApiKind::kChat) {
    std::string rendered;
    const bool has_template = engine_.RenderChat(request.messages, options_.template_name, &rendered);
    if (!has_template && request.messages.size() > 1) {
      throw ApiError(400,
                     fmt::format("this model has no chat template, so it takes one message, and there are {}: start "
                                 "the server with --template NAME, or use /v1/completions",
                                 request.messages.size()),
                     "messages");
    }
    add(has_template ? ids_of(rendered, false) : ids_of(request.messages.front().content, true));
  }
  for (const ApiPrompt& prompt : request.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    add(text != nullptr ? ids_of(*text, true) : std::get<std::vector<int32_t>>(prompt));
  }
  return prompts;
}

std::vector<int32_t> Service::PredictionOf(const ApiRequest& request) const {
  const auto positions = static_cast<size_t>(engine_.info().max_positions);
  if (request.prediction.size() > positions * kMostTokenBytes) {
    throw ApiError(400,
                   fmt::format("'prediction' has {} bytes, more than a reply of {} tokens can have",
                               request.prediction.size(), positions),
                   "prediction");
  }
  if (request.prediction.empty()) return {};
  return engine_.Tokenize(request.prediction, /*parse_special=*/false, /*add_bos=*/false);
}

int32_t Service::MostTokensOf(const ApiRequest& request, size_t longest_prompt) const {
  const int32_t limit = options_.max_tokens;
  if (limit > 0 && request.max_tokens.value_or(0) > limit) {
    throw ApiError(400, fmt::format("'max_tokens' is {}, and this server gives {} at most", *request.max_tokens, limit),
                   "max_tokens");
  }
  const EngineInfo& info = engine_.info();
  const auto longest = static_cast<int32_t>(longest_prompt);
  const int32_t rest = std::max(1, info.max_positions - longest);
  const int32_t room = std::max(1, std::min(rest, info.kv_positions - kTreeRoom - longest));
  const int32_t most = request.max_tokens.value_or(request.kind == ApiKind::kChat ? room : std::min(16, rest));
  return limit > 0 ? std::min(most, limit) : most;
}

void Service::Remember(const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(jobs_mutex_);
  jobs_.emplace(std::pair(job->begin(), job.get()), job);
}

void Service::Forget(const Job& job) {
  const std::lock_guard lock(jobs_mutex_);
  jobs_.erase({job.begin(), &job});
}

std::vector<std::shared_ptr<Job>> Service::JobsUntil(Job::Clock::time_point last) {
  const std::lock_guard lock(jobs_mutex_);
  std::vector<std::shared_ptr<Job>> found;
  for (const auto& [key, job] : jobs_) {
    if (key.first > last) break;
    if (auto alive = job.lock()) found.push_back(std::move(alive));
  }
  return found;
}

void Service::EndLateJobs() {
  if (options_.request_timeout.count() == 0) return;
  for (const std::shared_ptr<Job>& job : JobsUntil(Job::Clock::now() - options_.request_timeout)) {
    job->EndWith(ApiError(504,
                          fmt::format("the reply was not ready after {} seconds, which is this server's limit",
                                      options_.request_timeout.count()),
                          "", "timeout"));
  }
}

void Service::EndAll() {
  const ApiError error(503, "the server is ending, and the reply was not ready in time");
  for (const std::shared_ptr<Job>& job : JobsUntil(Job::Clock::time_point::max())) job->EndWith(error);
}

void Service::Complete(ApiKind kind, const HttpRequest& http, const std::string& key,
                       const std::shared_ptr<RecordedExchange>& exchange) {
  if (is_draining_) throw ApiError(503, "the server is ending");
  ApiRequest request = ParseApiRequest(kind, BodyOf(http), options_.defaults);
  if (!request.model.empty() && request.model != options_.model_name) {
    throw ApiError(
        404, fmt::format("The model '{}' does not exist; this server has '{}'", request.model, options_.model_name),
        "model", "model_not_found");
  }
  const std::vector<std::vector<int32_t>> prompts = PromptsOf(request);
  GenerationRequest& generation = request.generation;
  if (kind == ApiKind::kChat) {
    auto& ends = generation.stop.eos_token_ids;
    ends.insert(ends.end(), options_.end_of_reply.begin(), options_.end_of_reply.end());
  }
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, prompt.size());
  generation.stop.max_tokens = MostTokensOf(request, longest);
  generation.prediction_ids = PredictionOf(request);
  if (!request.has_seed) generation.sampling.seed = FreshSeed();
  generation.cache_scope = options_.share_cache || key.empty() ? "all" : "key " + key;
  const ReplyHeader header{
      .kind = kind,
      .id = fmt::format("{}-{:x}-{}", kind == ApiKind::kChat ? "chatcmpl" : "cmpl", started_, ++last_id_),
      .model = options_.model_name,
      .created = SecondsNow(),
      .seed = generation.sampling.seed};
  const auto job = std::make_shared<Job>(*this, std::move(request), header, key, exchange);
  job->Start(prompts);
}

}  // namespace hydrant::server
