// SPDX-License-Identifier: Apache-2.0
#include "server/recorded_exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>

#include "base/json.h"

namespace hydrant::server {

void RecordedExchange::AddId(HttpResponse& response) const {
  if (!id_.empty()) response.headers.emplace_back("X-Request-Id", id_);
}

void RecordedExchange::Send(HttpResponse response) {
  AddId(response);
  Note([&](ReplyRecord& record) {
    record.status = response.status;
    record.body_bytes = response.body.size();
    record.is_whole = true;
  });
  inner_->Send(std::move(response));
  Over();
}

void RecordedExchange::Begin(HttpResponse head) {
  AddId(head);
  Note([&](ReplyRecord& record) {
    record.status = head.status;
    record.body_bytes = head.body.size();
  });
  inner_->Begin(std::move(head));
}

void RecordedExchange::Write(std::string part) {
  Note([&](ReplyRecord& record) { record.body_bytes += part.size(); });
  inner_->Write(std::move(part));
}

void RecordedExchange::End() {
  Note([](ReplyRecord& record) { record.is_whole = true; });
  inner_->End();
  Over();
}

void RecordedExchange::Over() {
  ReplyRecord record;
  OnOver on_over;
  {
    const std::lock_guard lock(mutex_);
    if (!on_over_) return;
    on_over = std::exchange(on_over_, nullptr);
    record = std::move(record_);
  }
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  on_over(record);
}

std::string LogLine(const ReplyRecord& record) {
  const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  base::Json json = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", now)},
                     {"id", record.id},
                     {"remote", record.remote},
                     {"method", record.method},
                     {"path", record.path},
                     {"status", record.status},
                     {"whole", record.is_whole},
                     {"ms", std::llround(record.seconds * 1000)},
                     {"bytes", record.body_bytes}};
  if (!record.forwarded_for.empty()) json["forwarded_for"] = record.forwarded_for;
  if (!record.key.empty()) json["key"] = record.key;
  if (record.prompt_tokens > 0) {
    json["prompt_tokens"] = record.prompt_tokens;
    json["completion_tokens"] = record.completion_tokens;
  }
  if (!record.request_body.empty()) json["request"] = record.request_body;
  if (!record.reply_text.empty()) json["reply"] = record.reply_text;
  return base::DumpJson(json) + "\n";
}

}  // namespace hydrant::server
