// SPDX-License-Identifier: Apache-2.0
// The bytes of one reply, in order, to the connection that sends them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/http/http.h"

namespace hydrant::server {

// Where an exchange's bytes go. Calls may come from any thread.
class ExchangeSink {
 public:
  virtual ~ExchangeSink() = default;
  // `is_last`: the reply ends with these bytes; where `must_close`, the connection does too.
  virtual void Queue(std::string bytes, bool is_last, bool must_close) = 0;
};

// What the reply depends on of its request.
struct ExchangeSettings {
  bool head_only = false;  // HEAD: no body
  bool is_http10 = false;  // no chunks: the connection's end ends the reply
  bool keep_alive = true;
};

class SinkExchange : public Exchange {
 public:
  SinkExchange(std::shared_ptr<ExchangeSink> sink, const ExchangeSettings& settings)
      : sink_(std::move(sink)), settings_(settings) {}
  ~SinkExchange() override;
  SinkExchange(const SinkExchange&) = delete;
  SinkExchange& operator=(const SinkExchange&) = delete;

  void Send(HttpResponse response) override;
  void Begin(HttpResponse head) override;
  void Write(std::string part) override;
  void End() override;
  void OnGone(std::function<void()> fn) override;

  // The client has gone: calls what OnGone was given.
  void Gone();

 private:
  enum class Stage : uint8_t { kNothing, kBegun, kEnded };

  std::string Part(const std::string& part) const;

  std::shared_ptr<ExchangeSink> sink_;
  ExchangeSettings settings_;
  std::mutex mutex_;  // guards what follows
  Stage stage_ = Stage::kNothing;
  bool is_gone_ = false;
  std::function<void()> on_gone_;
};

// Status line and header fields, to the empty line. `length`: of the body; negative: in chunks, or to the connection's
// end.
std::string HeadText(const HttpResponse& response, const ExchangeSettings& settings, int64_t length);

}  // namespace hydrant::server
