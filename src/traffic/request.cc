// SPDX-License-Identifier: Apache-2.0
#include "traffic/request.h"

#include "base/json.h"

namespace hydrant::traffic {

using base::Json;

std::string PathOf(const RequestSettings& settings) {
  return settings.is_chat ? "/v1/chat/completions" : "/v1/completions";
}

std::string RequestBody(const RequestSettings& settings, std::span<const Message> messages, int64_t index) {
  Json body = {{"model", settings.model},
               {"max_tokens", settings.max_tokens},
               {"temperature", settings.temperature},
               // Servers in C++ and Go read seeds as signed numbers.
               {"seed", (settings.seed + static_cast<uint64_t>(index)) & 0x7fffffff},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (settings.ignore_eos) body["ignore_eos"] = true;
  if (settings.is_plain) body["speculation"] = {{"enabled", false}};
  if (settings.is_chat) {
    Json list = Json::array();
    for (const Message& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
    body["messages"] = std::move(list);
  } else {
    std::string text;
    for (const Message& message : messages) text += (text.empty() ? "" : "\n\n") + message.content;
    body["prompt"] = std::move(text);
  }
  return base::DumpJson(body);
}

}  // namespace hydrant::traffic
