// SPDX-License-Identifier: Apache-2.0
#include "server/job.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "server/api/api_error.h"
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
      is_cancelled_ = true;
      for (const RequestId id : ids_) service_.engine_.Cancel(id);
      for (auto i = static_cast<int32_t>(ids_.size()); i < count; ++i) service_.GiveBack(key_);
      throw;
    }
    if (request_.stream) Begin();
  }
  exchange_->OnGone([self = shared_from_this()] { self->CancelAll(); });
}

void Job::Submit(const std::vector<int32_t>& prompt) {
  prompt_tokens_.push_back(static_cast<int64_t>(prompt.size()));
  GenerationRequest generation = request_.generation;
  generation.prompt_ids = prompt;
  const std::string echo = request_.echo ? service_.engine_.Detokenize(prompt, /*skip_special=*/true) : "";
  for (int32_t c = 0; c < request_.n; ++c) {
    const size_t choice = ids_.size();
    generation.sampling.seed = SeedOfChoice(header_.seed, c);
    const auto self = shared_from_this();
    results_.emplace_back();
    last_.push_back(begin_);
    ids_.push_back(service_.loop_.Submit(
        generation, {.on_emit = [self, choice](const Emission& emission) { return self->OnEmit(choice, emission); },
                     .on_done = [self, choice](GenerationResult result) { self->OnDone(choice, std::move(result)); }}));
    echoes_.push_back(echo);
    ++num_left_;
  }
}

void Job::Begin() {
  std::string events;
  for (size_t i = 0; i < echoes_.size(); ++i) {
    const auto choice = static_cast<int32_t>(i);
    if (request_.kind == ApiKind::kChat) events += EventText(RoleEvent(header_, choice));
    if (!echoes_[i].empty()) events += EventText(TextEvent(header_, choice, echoes_[i], nullptr, request_, {}));
  }
  exchange_->Begin({.content_type = "text/event-stream; charset=utf-8",
                    .body = std::move(events),
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

bool Job::OnEmit(size_t choice, const Emission& emission) {
  const std::lock_guard lock(mutex_);
  if (is_cancelled_) return false;
  if (emission.token_ids.empty()) return true;
  Observe(choice, static_cast<int64_t>(emission.token_ids.size()));
  if (!request_.stream) return true;
  const auto text_of = [this](int32_t token) {
    return service_.engine_.Detokenize(std::span(&token, 1), /*skip_special=*/false);
  };
  exchange_->Write(
      EventText(TextEvent(header_, static_cast<int32_t>(choice), emission.text, &emission, request_, text_of)));
  return true;
}

void Job::Observe(size_t choice, int64_t tokens) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_[choice]).count();
  if (last_[choice] == begin_) {
    service_.metrics_.ObserveFirstToken(seconds);
  } else {
    service_.metrics_.ObserveTokens(seconds, tokens);
  }
  last_[choice] = now;
}

void Job::OnDone(size_t choice, GenerationResult result) {
  service_.GiveBack(key_);
  const std::lock_guard lock(mutex_);
  results_[choice] = std::move(result);
  service_.metrics_.CountResult(results_[choice], prompt_tokens_[choice / static_cast<size_t>(request_.n)]);
  --num_left_;
  if (is_cancelled_) return;
  if (request_.stream && !results_[choice].error) {
    exchange_->Write(EventText(FinishEvent(header_, static_cast<int32_t>(choice), results_[choice])));
  }
  if (num_left_ == 0) Finish();
}

void Job::CancelAll() {
  const std::lock_guard lock(mutex_);
  is_cancelled_ = true;
  for (const RequestId id : ids_) service_.engine_.Cancel(id);
}

UsageCounts Job::Usage() const {
  UsageCounts usage;
  for (const int64_t tokens : prompt_tokens_) usage.prompt += tokens;
  for (size_t i = 0; i < results_.size(); ++i) {
    usage.completion += static_cast<int64_t>(results_[i].token_ids.size());
    // Other choices of a prompt share what the first one has computed; that is no cache of the client's.
    if (i % static_cast<size_t>(request_.n) == 0) usage.cached += results_[i].num_reused;
  }
  return usage;
}

void Job::Finish() {
  exchange_->Note([&](ReplyRecord& record) {
    const UsageCounts usage = Usage();
    record.prompt_tokens = usage.prompt;
    record.completion_tokens = usage.completion;
    if (!service_.options_.log_requests) return;
    for (const GenerationResult& result : results_) record.reply_text += result.text;
  });
  const auto failed = std::ranges::find_if(results_, [](const GenerationResult& result) { return !!result.error; });
  if (failed != results_.end()) {
    ApiError error(500, "internal error");
    try {
      std::rethrow_exception(failed->error);
    } catch (const std::exception& cause) {
      error = ApiError(500, std::string("the reply could not be computed: ") + cause.what());
    } catch (...) {
    }
    if (!request_.stream) return exchange_->Send(error.Response());
    exchange_->Write("data: " + error.Body() + "\n\n");
    return exchange_->End();
  }
  if (!request_.stream) {
    return exchange_->Send({.body = base::DumpJson(ReplyJson(header_, request_, results_, echoes_, Usage()))});
  }
  if (request_.include_usage) exchange_->Write(EventText(UsageEvent(header_, Usage(), results_)));
  exchange_->Write(kLastEvent);
  exchange_->End();
}

}  // namespace hydrant::server
