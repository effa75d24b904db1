// SPDX-License-Identifier: Apache-2.0
// One completion on its way: its choices run in the engine, and what they give goes to the client.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/api/api_error.h"
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
  // Cancels what is left of it, and gives its client `error`. From any thread.
  void EndWith(const ApiError& error);
  Clock::time_point begin() const { return begin_; }

 private:
  struct Choice {
    RequestId id = 0;
    GenerationResult result = {};
    Clock::time_point last;  // when its last tokens came; begin_: none came yet
    Echo echo = {};
    int64_t offset = 0;  // characters of its text so far
  };

  void Submit(const std::vector<int32_t>& prompt);
  void Begin();
  // Called by the engine.
  bool OnEmit(size_t choice, const Emission& emission);
  void Observe(Choice& choice, int64_t tokens);
  void OnDone(size_t choice, GenerationResult result);

  BytesOf TokenBytes() const;
  void Gone();
  void CancelAll();
  // Of the choice's prompt, the choice that was submitted first.
  const Choice& FirstOfPrompt(size_t choice) const {
    return choices_[choice - choice % static_cast<size_t>(request_.n)];
  }
  void Finish();
  void FinishWith(const ApiError& error);
  void Note();
  UsageCounts Usage() const;

  Service& service_;
  const ApiRequest request_;
  const ReplyHeader header_;
  const std::string key_;  // whose sequences these are
  const std::shared_ptr<RecordedExchange> exchange_;
  const Clock::time_point begin_ = Clock::now();

  std::mutex mutex_;                    // guards what follows
  std::vector<Choice> choices_;         // of all prompts, those of one prompt together
  std::vector<int64_t> prompt_tokens_;  // [prompts]
  size_t num_left_ = 0;
  bool is_gone_ = false;              // the client
  std::optional<ApiError> ended_by_;  // of EndWith
};

}  // namespace hydrant::server
