// SPDX-License-Identifier: Apache-2.0
#include "server/job.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "server/service.h"

namespace hydrant::server {

Job::Job(Service& service, ApiRequest request, ReplyHeader header, std::string key,
         std::shared_ptr<RecordedExchange> exchange)
    : service_(service),
      request_(std::move(request)),
      header_(std::move(header)),
      key_(std::move(key)),
      exchange_(std::move(exchange)) {}

void Job::Start(const std::vector<std::vector<int32_t>>& prompts) {
  {
    const std::lock_guard lock(mutex_);  // callbacks wait until all are submitted
    const auto count = static_cast<int32_t>(prompts.size()) * request_.n;
    service_.Take(key_, count);
    try {
      for (const std::vector<int32_t>& prompt : prompts) Submit(prompt);
    } catch (...) {
      is_gone_ = true;
      CancelAll();
      for (auto i = static_cast<int32_t>(num_left_); i < count; ++i) service_.GiveBack(key_);
      throw;
    }
    if (request_.stream) Begin();
    service_.Remember(shared_from_this());
  }
  exchange_->OnGone([self = shared_from_this()] { self->Gone(); });
}

void Job::Submit(const std::vector<int32_t>& prompt) {
  prompt_tokens_.push_back(static_cast<int64_t>(prompt.size()));
  GenerationRequest generation = request_.generation;
  generation.prompt_ids = prompt;
  Echo echo;
  if (request_.echo) echo = {service_.engine_.Detokenize(prompt, /*skip_special=*/true), prompt, {}};
  for (int32_t c = 0; c < request_.n; ++c) {
    const size_t index = choices_.size();
    generation.sampling.seed = SeedOfChoice(header_.seed, c);
    const auto self = shared_from_this();
    choices_.push_back({.last = begin_, .echo = echo});
    choices_.back().id = service_.loop_.Submit(
        generation, {.on_emit = [self, index](const Emission& emission) { return self->OnEmit(index, emission); },
                     .on_done = [self, index](GenerationResult result) { self->OnDone(index, std::move(result)); }});
    ++num_left_;
    generation.score_prompt = false;  // once for each prompt
  }
}

void Job::Begin() {
  std::string events;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const auto choice = static_cast<int32_t>(i);
    const Echo& echo = choices_[i].echo;
    if (request_.kind == ApiKind::kChat) events += EventText(RoleEvent(header_, choice));
    if (!echo.text.empty()) events += EventText(EchoEvent(header_, choice, echo.text));
  }
  exchange_->Begin({.content_type = "text/event-stream; charset=utf-8",
                    .body = std::move(events),
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

BytesOf Job::TokenBytes() const {
  return [&engine = service_.engine_](int32_t token) { return engine.TokenBytes(token); };
}

bool Job::OnEmit(size_t choice, const Emission& emission) {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || ended_by_) return false;
  if (emission.token_ids.empty()) return true;
  Choice& emitting = choices_[choice];
  Observe(emitting, static_cast<int64_t>(emission.token_ids.size()));
  if (!request_.stream) return true;
  exchange_->Write(
      EventText(TextEvent(header_, static_cast<int32_t>(choice), emission, request_, TokenBytes(), emitting.offset)));
  return true;
}

void Job::Observe(Choice& choice, int64_t tokens) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - choice.last).count();
  if (choice.last == begin_) {
    service_.metrics_.ObserveFirstToken(seconds);
  } else {
    service_.metrics_.ObserveTokens(seconds, tokens);
  }
  choice.last = now;
}

void Job::OnDone(size_t choice, GenerationResult result) {
  service_.GiveBack(key_);
  const std::lock_guard lock(mutex_);
  Choice& ended = choices_[choice];
  ended.result = std::move(result);
  service_.metrics_.CountResult(ended.result, prompt_tokens_[choice / static_cast<size_t>(request_.n)]);
  if (--num_left_ == 0) service_.Forget(*this);
  if (is_gone_) return;
  if (request_.stream && !ended.result.error && !ended_by_) {
    exchange_->Write(EventText(FinishEvent(header_, static_cast<int32_t>(choice), ended.result)));
  }
  if (num_left_ == 0) Finish();
}

void Job::CancelAll() {
  for (const Choice& choice : choices_) service_.engine_.Cancel(choice.id);
}

void Job::Gone() {
  const std::lock_guard lock(mutex_);
  is_gone_ = true;
  CancelAll();
}

void Job::EndWith(const ApiError& error) {
  const std::lock_guard lock(mutex_);
  if (num_left_ == 0 || ended_by_) return;
  ended_by_ = error;
  CancelAll();
}

UsageCounts Job::Usage() const {
  UsageCounts usage;
  for (const int64_t tokens : prompt_tokens_) usage.prompt += tokens;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const GenerationResult& result = choices_[i].result;
    usage.completion += static_cast<int64_t>(result.token_ids.size());
    usage.accepted_prediction += result.num_predicted_accepted;
    usage.rejected_prediction += result.num_predicted - result.num_predicted_accepted;
    // Other choices of a prompt share what the first one has computed; that is no cache of the client's.
    if (&FirstOfPrompt(i) == &choices_[i]) usage.cached += result.num_reused;
  }
  return usage;
}

// For the record of this reply.
void Job::Note() {
  exchange_->Note([&](ReplyRecord& record) {
    const UsageCounts usage = Usage();
    record.prompt_tokens = usage.prompt;
    record.completion_tokens = usage.completion;
    if (!service_.options_.log_requests) return;
    for (const Choice& choice : choices_) record.reply_text += choice.result.text;
  });
}

void Job::FinishWith(const ApiError& error) {
  if (!request_.stream) return exchange_->Send(error.Response());
  exchange_->Write("data: " + error.Body() + "\n\n");
  exchange_->End();
}

void Job::Finish() {
  Note();
  if (ended_by_) return FinishWith(*ended_by_);
  const auto failed = std::ranges::find_if(choices_, [](const Choice& choice) { return !!choice.result.error; });
  if (failed != choices_.end()) {
    try {
      std::rethrow_exception(failed->result.error);
    } catch (const std::exception& cause) {
      return FinishWith(ApiError(500, std::string("the reply could not be computed: ") + cause.what()));
    } catch (...) {
      return FinishWith(ApiError(500, "internal error"));
    }
  }
  const UsageCounts usage = Usage();
  std::vector<Echo> echoes;
  std::vector<GenerationResult> results;
  for (size_t i = 0; i < choices_.size(); ++i) {
    echoes.push_back(std::move(choices_[i].echo));
    if (request_.echo) echoes.back().logprobs = FirstOfPrompt(i).result.prompt_logprobs;
  }
  for (Choice& choice : choices_) results.push_back(std::move(choice.result));
  if (!request_.stream) {
    const base::Json json = ReplyJson(header_, request_, results, echoes, usage, TokenBytes());
    return exchange_->Send({.body = base::DumpJson(json)});
  }
  if (request_.include_usage) exchange_->Write(EventText(UsageEvent(header_, usage, results)));
  exchange_->Write(kLastEvent);
  exchange_->End();
}

}  // namespace hydrant::server
