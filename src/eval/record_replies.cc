// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/float_mode.h"
#include "engine/core.h"
#include "eval/record.h"
#include "hydrant/engine.h"
#include "hydrant/error.h"
#include "sequence/reply_end.h"

namespace hydrant::eval {
namespace {

// Plain decoding of all prompts, so many at a time.
class ReplyRecorder {
 public:
  ReplyRecorder(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts, const RecordOptions& options)
      : loaded_(loaded), prompts_(prompts), options_(options), core_(loaded), texts_(prompts.size()) {}

  std::vector<RecordedReply> Run() {
    const base::DefaultFloatMode mode;
    Tell();
    for (;;) {
      while (open_ < options_.side_by_side && next_ < prompts_.size()) Submit(next_++);
      if (open_ == 0) break;
      core_.Step();
      if (error_) std::rethrow_exception(error_);
      Tell();
    }
    std::vector<RecordedReply> replies;
    for (Text& text : texts_) replies.push_back(std::move(text.reply));
    return replies;
  }

 private:
  struct Text {
    std::optional<sequence::ReplyEnd> end;
    std::optional<FinishReason> reason;  // set: the reply is over
    size_t length = 0;                   // of the reply
    size_t count = 0;                    // of tokens so far
    RecordedReply reply;
  };

  // The engine is asked to go on behind the reply's end, and the rules that end it are applied here.
  void Submit(size_t i) {
    Text& text = texts_[i];
    GenerationRequest request;
    request.prompt_ids = prompts_[i];
    request.sampling = options_.sampling;
    request.sampling.seed += i;
    request.use_drafter = false;
    request.stop.ignore_eos = true;
    request.stop.max_tokens =
        static_cast<int32_t>(std::min<int64_t>(int64_t{options_.stop.max_tokens} + options_.past_end, INT32_MAX));
    text.reply = {.prompt_ids = prompts_[i], .token_ids = {}, .past_end = {}, .seed = request.sampling.seed};
    text.end.emplace(Rules(), prompts_[i].size(), loaded_.tokenizer.get());
    core_.Submit(request, {.on_emit = [this, &text](const Emission& emission) { return Take(text, emission); },
                           .on_done = [this, &text](GenerationResult result) { Finish(text, std::move(result)); }});
    ++open_;
  }

  sequence::EndRules Rules() const {
    sequence::EndRules rules{.stop = options_.stop,
                             .eos_token_ids = loaded_.info.eos_token_ids,
                             .max_positions = loaded_.info.max_positions};
    const std::vector<int32_t>& more = options_.stop.eos_token_ids;
    rules.eos_token_ids.insert(rules.eos_token_ids.end(), more.begin(), more.end());
    return rules;
  }

  size_t Wanted(const Text& text) const { return text.length + static_cast<size_t>(options_.past_end); }

  // Whether to go on.
  bool Take(Text& text, const Emission& emission) const {
    for (const int32_t token : emission.token_ids) {
      ++text.count;
      if (text.reason) continue;
      text.reason = text.end->Push(token);
      if (text.reason) text.length = text.count;
    }
    return !text.reason || text.count < Wanted(text);
  }

  void Finish(Text& text, GenerationResult result) {
    --open_;
    ++done_;
    if (result.error) error_ = result.error;
    if (error_) return;
    if (result.finish_reason == FinishReason::kCancelled && !(text.reason && text.count >= Wanted(text))) {
      error_ = std::make_exception_ptr(Stopped());  // by EngineOptions::stop
      return;
    }
    HYDRANT_CHECK(text.reason.has_value());
    const auto end = result.token_ids.begin() + static_cast<std::ptrdiff_t>(text.length);
    text.reply.token_ids.assign(result.token_ids.begin(), end);
    text.reply.past_end.assign(end, result.token_ids.end());
    text.reply.finish_reason = *text.reason;
    text.end.reset();
  }

  void Tell() const {
    if (!options_.progress) return;
    const double most = static_cast<double>(options_.stop.max_tokens) + options_.past_end;
    double sum = 0;
    for (const Text& text : texts_) sum += text.end ? static_cast<double>(text.count) / most : 0;
    options_.progress((static_cast<double>(done_) + sum) / static_cast<double>(std::max<size_t>(texts_.size(), 1)));
  }

  load::LoadedModel& loaded_;
  std::span<const std::vector<int32_t>> prompts_;
  const RecordOptions& options_;
  engine::Core core_;
  std::vector<Text> texts_;
  int32_t open_ = 0;
  size_t next_ = 0, done_ = 0;
  std::exception_ptr error_;
};

}  // namespace

std::vector<RecordedReply> RecordReplies(load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts,
                                         const RecordOptions& options) {
  GenerationRequest asked;
  asked.sampling = options.sampling;
  asked.stop = options.stop;
  ValidateRequest(asked);
  const auto check = [](const char* name, int32_t value, int32_t least) {
    if (value >= least) return;
    throw UserError(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(least) +
                    " at least");
  };
  check("StopOptions::max_tokens", options.stop.max_tokens, 1);
  check("RecordOptions::past_end", options.past_end, 0);
  check("RecordOptions::side_by_side", options.side_by_side, 1);
  if (!options.stop.stop.empty() && !loaded.tokenizer) {
    throw UserError("stop strings need a tokenizer, and " + loaded.options.model + " has none");
  }
  return ReplyRecorder(loaded, prompts, options).Run();
}

}  // namespace hydrant::eval
