// SPDX-License-Identifier: Apache-2.0
// One completion on its way: its choices run in the engine, and what they give goes to the client.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/api/api_request.h"
#include "server/api/replies.h"
#include "server/recorded_exchange.h"

namespace hydrant::server {

class Service;

class Job : public std::enable_shared_from_this<Job> {
 public:
  using Clock = std::chrono::steady_clock;

  Job(Service& service, ApiRequest request, ReplyHeader header, std::string key,
      std::shared_ptr<RecordedExchange> exchange);

  // Submits every choice of every prompt. Throws what Engine::Submit throws; then nothing runs and nothing was sent.
  void Start(const std::vector<std::vector<int32_t>>& prompts);

 private:
  void Submit(const std::vector<int32_t>& prompt);
  void Begin();
  // Called by the engine.
  bool OnEmit(size_t choice, const Emission& emission);
  void Observe(size_t choice, int64_t tokens);
  void OnDone(size_t choice, GenerationResult result);

  void CancelAll();
  void Finish();
  UsageCounts Usage() const;

  Service& service_;
  const ApiRequest request_;
  const ReplyHeader header_;
  const std::string key_;  // whose sequences these are
  const std::shared_ptr<RecordedExchange> exchange_;
  const Clock::time_point begin_ = Clock::now();

  std::mutex mutex_;                       // guards what follows
  std::vector<RequestId> ids_;             // [choices]
  std::vector<GenerationResult> results_;  // [choices]
  std::vector<Clock::time_point> last_;    // [choices] when its last tokens came; begin_: none came yet
  std::vector<std::string> echoes_;        // [choices]
  std::vector<int64_t> prompt_tokens_;     // [prompts]
  size_t num_left_ = 0;
  bool is_cancelled_ = false;
};

}  // namespace hydrant::server
