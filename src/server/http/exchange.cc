// SPDX-License-Identifier: Apache-2.0
#include "server/http/exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

namespace hydrant::server {

std::string HeadText(const HttpResponse& response, const ExchangeSettings& settings, int64_t length) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nServer: hydrant\r\n",
                                 response.status, StatusText(response.status), fmt::gmtime(std::time(nullptr)));
  if (!response.content_type.empty()) text += "Content-Type: " + response.content_type + "\r\n";
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (length >= 0) {
    text += fmt::format("Content-Length: {}\r\n", length);
  } else if (!settings.is_http10) {
    text += "Transfer-Encoding: chunked\r\n";
  }
  if (!settings.keep_alive) {
    text += "Connection: close\r\n";
  } else if (settings.is_http10) {
    text += "Connection: keep-alive\r\n";
  }
  return text + "\r\n";
}

SinkExchange::~SinkExchange() {
  if (stage_ == Stage::kNothing) {
    SinkExchange::Send(
        {.status = 500,
         .body = R"({"error":{"message":"no reply was made","type":"server_error","param":null,"code":null}})"});
  } else if (stage_ == Stage::kBegun) {
    sink_->Queue({}, /*is_last=*/true, /*must_close=*/true);  // without the last chunk: the client sees that it is cut
  }
}

void SinkExchange::Send(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::kNothing) return;
  stage_ = Stage::kEnded;
  on_gone_ = nullptr;
  std::string bytes = HeadText(response, settings_, static_cast<int64_t>(response.body.size()));
  if (!settings_.head_only) bytes += response.body;
  sink_->Queue(std::move(bytes), /*is_last=*/true, !settings_.keep_alive);
}

void SinkExchange::Begin(HttpResponse head) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::kNothing) return;
  stage_ = Stage::kBegun;
  if (settings_.is_http10) settings_.keep_alive = false;
  sink_->Queue(HeadText(head, settings_, -1) + Part(head.body), /*is_last=*/false, /*must_close=*/false);
}

std::string SinkExchange::Part(const std::string& part) const {
  if (part.empty() || settings_.head_only) return {};  // an empty chunk would be the last one
  return settings_.is_http10 ? part : fmt::format("{:x}\r\n{}\r\n", part.size(), part);
}

void SinkExchange::Write(std::string part) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::kBegun || is_gone_) return;
  if (std::string bytes = Part(part); !bytes.empty()) sink_->Queue(std::move(bytes), false, false);
}

void SinkExchange::End() {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::kBegun) return;
  stage_ = Stage::kEnded;
  on_gone_ = nullptr;
  const bool chunks = !settings_.is_http10 && !settings_.head_only;
  sink_->Queue(chunks ? "0\r\n\r\n" : "", /*is_last=*/true, !settings_.keep_alive);
}

void SinkExchange::OnGone(std::function<void()> fn) {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ == Stage::kEnded) return;
    if (!is_gone_) {
      on_gone_ = std::move(fn);
      return;
    }
  }
  fn();
}

void SinkExchange::Gone() {
  std::function<void()> fn;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    fn = std::exchange(on_gone_, nullptr);
  }
  if (fn) fn();
}

}  // namespace hydrant::server
