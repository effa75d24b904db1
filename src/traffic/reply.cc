// SPDX-License-Identifier: Apache-2.0
#include "traffic/reply.h"

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::traffic {
namespace {

using base::JsonView;

constexpr const char* kEvent = "an event";
constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr size_t kMostText = size_t{64} << 20;  // bytes of a reply
constexpr size_t kShown = 300;                  // bytes of an error's body

std::string TextIn(const JsonView& object, std::string_view key) {
  return object.Has(key) ? object.At(key).String() : std::string();
}

}  // namespace

std::string MessageOfError(std::string_view body) {
  std::string text(body.substr(0, kShown));
  try {
    const base::Json json = base::ParseJson(body, "the reply");
    JsonView view(json, "the reply");
    if (view.Has("error")) view = view.At("error");
    if (view.is_string()) text = view.String();
    for (const std::string_view key : {"message", "detail"}) {
      if (view.Has(key) && view.At(key).is_string()) return view.At(key).String().substr(0, kShown);
    }
  } catch (const UserError&) {  // some other form: its beginning is shown
  }
  return text.substr(0, kShown);
}

bool ReplyReader::Add(std::string_view bytes, double at) {
  try {
    const bool is_read = events_.Add(bytes, [this, at](std::string_view data) { Take(data, at); });
    if (!is_read) {
      reply_.failure = Failure::kMalformed;
      reply_.problem = "an event is longer than 16 MB";
    }
  } catch (const UserError& error) {
    reply_.failure = Failure::kMalformed;
    reply_.problem = error.what();
  }
  return reply_.failure == Failure::kNone;
}

void ReplyReader::Take(std::string_view data, double at) {
  if (reply_.failure != Failure::kNone) return;
  if (data == "[DONE]") {
    is_whole_ = true;
    return;
  }
  const base::Json json = base::ParseJson(data, kEvent);
  const JsonView event(json, kEvent);
  if (event.Has("error")) {
    reply_.failure = Failure::kError;
    reply_.problem = MessageOfError(data);
    return;
  }
  if (event.Has("choices") && event.At("choices").Size() > 0) TakeChoice(event.At("choices").At(size_t{0}), at);
  TakeUsage(event);
}

void ReplyReader::TakeChoice(const JsonView& choice, double at) {
  if (!choice.is_object()) choice.Fail("an object");
  std::string text;
  if (choice.Has("delta")) {
    const JsonView delta = choice.At("delta");
    // What models think before they answer is made of tokens, too.
    text = TextIn(delta, "reasoning_content") + TextIn(delta, "content");
  } else {
    text = TextIn(choice, "text");
  }
  if (choice.Has("finish_reason")) is_whole_ = true;
  if (text.empty()) return;
  if (reply_.text.size() + text.size() > kMostText) throw UserError("the reply is longer than 64 MB");
  if (reply_.num_events == 0) {
    reply_.first = at;
  } else {
    reply_.gaps.push_back(at - reply_.last);
  }
  reply_.last = at;
  ++reply_.num_events;
  if (!reply_.has_usage) reply_.num_tokens = reply_.num_events;
  reply_.text += text;
}

void ReplyReader::TakeUsage(const JsonView& event) {
  if (event.Has("usage")) {
    const JsonView usage = event.At("usage");
    reply_.num_tokens = usage.At("completion_tokens").Int(0, kMostTokens);
    reply_.has_usage = true;
    if (usage.Has("prompt_tokens")) reply_.num_prompt_tokens = usage.At("prompt_tokens").Int(0, kMostTokens);
  }
  if (!event.Has("speculation")) return;
  const JsonView speculation = event.At("speculation");
  if (!speculation.Has("steps") || !speculation.Has("tokens_per_step")) return;
  reply_.num_steps = speculation.At("steps").Int(0, kMostTokens);
  reply_.num_step_tokens = speculation.At("tokens_per_step").Number() * static_cast<double>(reply_.num_steps);
}

}  // namespace hydrant::traffic
