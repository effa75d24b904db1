// SPDX-License-Identifier: Apache-2.0
// An exchange that tells, when it is over, what became of it: for metrics and the access log. Its replies carry the
// request's id as X-Request-Id.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "server/http/http.h"

namespace hydrant::server {

struct ReplyRecord {
  std::string id = {};             // of the request: the client's own, or one made here
  std::string forwarded_for = {};  // as a proxy says, which is not checked
  std::string remote = {}, key = {}, method = {}, path = {};
  int status = 0;           // 0: none was sent
  bool is_whole = false;    // false: the client went away, or the reply broke off
  double seconds = 0;       // from the request's arrival to the reply's end
  uint64_t body_bytes = 0;  // of the reply
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::string request_body = {}, reply_text = {};  // only where requests are logged
};

class RecordedExchange : public Exchange {
 public:
  using OnOver = std::function<void(const ReplyRecord& record)>;

  RecordedExchange(std::shared_ptr<Exchange> inner, ReplyRecord record, OnOver on_over)
      : id_(record.id), inner_(std::move(inner)), record_(std::move(record)), on_over_(std::move(on_over)) {}
  ~RecordedExchange() override { Over(); }
  RecordedExchange(const RecordedExchange&) = delete;
  RecordedExchange& operator=(const RecordedExchange&) = delete;

  void Send(HttpResponse response) override;
  void Begin(HttpResponse head) override;
  void Write(std::string part) override;
  void End() override;
  void OnGone(std::function<void()> fn) override { inner_->OnGone(std::move(fn)); }

  // Adds to the record, before the reply's end.
  template <typename Fn>
  void Note(const Fn& fn) {
    const std::lock_guard lock(mutex_);
    fn(record_);
  }

 private:
  void AddId(HttpResponse& response) const;
  void Over();

  const std::string id_;
  std::shared_ptr<Exchange> inner_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  // guards what follows
  ReplyRecord record_;
  OnOver on_over_;  // empty: it has been called
};

// As one line of JSON.
std::string LogLine(const ReplyRecord& record);

}  // namespace hydrant::server
