// SPDX-License-Identifier: Apache-2.0
// What the server answers: OpenAI's completions over one engine, and what belongs to them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hydrant/engine.h"
#include "server/api/api_request.h"
#include "server/api_keys.h"
#include "server/engine_loop.h"
#include "server/http/http.h"
#include "server/metrics.h"
#include "server/recorded_exchange.h"

namespace hydrant::server {

class Job;

struct ServiceOptions {
  std::string model_name = {};             // as clients see it
  std::string template_name = {};          // of chats: a template's name, or "none"
  std::vector<int32_t> end_of_reply = {};  // of that template
  ApiDefaults defaults = {};
  int32_t max_open = 512;                   // sequences that run or wait; further ones get 429
  int32_t max_open_per_key = 512;           // of one key's
  ApiKeys keys = {};                        // of those who may ask for completions, texts, ids and metrics
  int32_t max_tokens = 0;                   // of one choice; 0: as many as the context holds
  std::chrono::seconds request_timeout{0};  // from a request's arrival to its reply's end; 0: none
  bool share_cache = false;                 // prompts of different keys share keys and values where they begin alike
  bool log_requests = false;                // records have the texts, too
  std::function<void(const ReplyRecord& record)> on_reply = {};  // each reply's end; from any thread
  std::function<int64_t()> num_connections = {};                 // open ones, for metrics
};

class Service {
 public:
  // `engine` must outlive this.
  Service(Engine& engine, ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // An HttpHandler.
  void Handle(const HttpRequest& request, std::shared_ptr<Exchange> exchange);

  // From now on /ready says 503, so that proxies send nothing further. What comes all the same is answered.
  void SayNotReady() { is_ready_ = false; }
  // From now on new completions are refused with 503, too.
  void Drain() {
    is_ready_ = false;
    is_draining_ = true;
  }
  // Ends all completions that run or wait: their clients get status 503, or that error as a stream's last event. The
  // engine still has to take a step for that.
  void EndAll();
  // Sequences that run or wait.
  int32_t num_open() const;

 private:
  friend class Job;

  // Of one client: its key's name, or "" where there are no keys.
  std::string KeyOf(const HttpRequest& request) const;
  std::string RequestIdOf(const HttpRequest& request);
  void OnReply(const ReplyRecord& record);
  void Respond(const HttpRequest& request, const std::shared_ptr<RecordedExchange>& recorded);
  void Answer(const HttpRequest& request, const std::string& key, const std::shared_ptr<RecordedExchange>& exchange);
  HttpResponse Get(const HttpRequest& request);
  HttpResponse Tokenize(const HttpRequest& request) const;
  HttpResponse Detokenize(const HttpRequest& request) const;
  void Complete(ApiKind kind, const HttpRequest& request, const std::string& key,
                const std::shared_ptr<RecordedExchange>& exchange);
  // Takes `count` sequences of a key, or throws ApiError. Job gives each back.
  void Take(const std::string& key, int32_t count);
  void GiveBack(const std::string& key);
  std::vector<std::vector<int32_t>> PromptsOf(const ApiRequest& request) const;
  std::vector<int32_t> PredictionOf(const ApiRequest& request) const;
  int32_t MostTokensOf(const ApiRequest& request, size_t longest_prompt) const;
  // Between these, a job can be ended from here.
  void Remember(const std::shared_ptr<Job>& job);
  void Forget(const Job& job);
  void EndLateJobs();
  // Those that began at `last` or before.
  std::vector<std::shared_ptr<Job>> JobsUntil(std::chrono::steady_clock::time_point last);

  Engine& engine_;
  ServiceOptions options_;
  std::atomic<bool> is_ready_ = true, is_draining_ = false;
  Metrics metrics_;
  std::mutex jobs_mutex_;  // guards jobs_
  // The oldest first.
  std::map<std::pair<std::chrono::steady_clock::time_point, const Job*>, std::weak_ptr<Job>> jobs_;
  mutable std::mutex mutex_;  // guards the numbers of open sequences
  int32_t num_open_ = 0;
  std::map<std::string, int32_t> open_of_key_;
  std::atomic<uint64_t> last_id_ = 0;
  int64_t started_;  // seconds since 1970
  EngineLoop loop_;
  struct Readers;
  std::unique_ptr<Readers> readers_;  // ends before the loop
};

}  // namespace hydrant::server
