// SPDX-License-Identifier: Apache-2.0
#include "sequence/sequence.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "sampling/logprobs.h"

namespace hydrant::sequence {

Sequence::Sequence(const GenerationRequest& request, const SequenceSetup& setup)
    : request_(request),
      max_positions_(setup.max_positions),
      base_layers_(setup.base_layers),
      cache_scope_(setup.cache_scope),
      shares_its_scope_(setup.shares_its_scope),
      drafter_(setup.drafter),
      tokens_(request.prompt_ids),
      table_(setup.pool),
      noise_(setup.kernels, request.sampling.seed, setup.vocab_size),
      end_({.stop = request.stop, .eos_token_ids = setup.eos_token_ids, .max_positions = setup.max_positions},
           request.prompt_ids.size(), setup.tokenizer),
      has_text_(setup.tokenizer != nullptr) {
  tree_.Reset(0);
  if (request.accept.rule == AcceptRule::kRejection && request.sampling.temperature > 0) {
    draws_.emplace(setup.kernels, request.sampling.seed, setup.vocab_size, sampling::NoiseCache::Stream::kDrafts);
  }
}

int32_t Sequence::Start() {
  // Leaves at least one row to compute, since the logits or hidden states of the last row before the next root are
  // needed. A prompt that is scored needs the logits of every row once.
  int32_t most = num_left() - 1;
  if (scores_prompt()) most = std::min(most, static_cast<int32_t>(result_.prompt_logprobs.size()));
  const int32_t adopted = table_.Adopt(cache_scope_, tokens_, most);
  if (drafter_ == nullptr) return adopted;
  draft_state_ = drafter_->NewState(request_);
  const draft::DraftKv kv{.table = &table_, .first_layer = base_layers_.first + base_layers_.count};
  table_.Truncate(drafter_->Resume(*draft_state_, kv, adopted));
  return table_.length();
}

void Sequence::Release() {
  table_.Truncate(0);
  draft_state_.reset();
}

void Sequence::End() {
  if (!shares_its_scope_) table_.Forget();
  Release();
}

void Sequence::Publish() {
  // Where the path goes on behind the end of the reply, the rest belongs to no text.
  table_.Truncate(std::min(table_.length(), static_cast<int32_t>(tokens_.size())));
  table_.Publish(cache_scope_, tokens_);
}

void Sequence::TakePromptLogprobs(size_t first, std::span<const TokenLogprobs> logprobs) {
  result_.prompt_logprobs.resize(first);  // after a preemption some rows come again
  result_.prompt_logprobs.insert(result_.prompt_logprobs.end(), logprobs.begin(), logprobs.end());
}

void Sequence::TakeFirst(std::span<const float> logits) {
  if (request_.stop.max_tokens == 0) return Finish(FinishReason::kLength);
  const bool argmax = request_.accept.rule == AcceptRule::kTypical && request_.accept.root == RootChoice::kArgmax &&
                      request_.sampling.temperature > 0;  // at 0 it is the exact rule
  const sampling::TokenHistory history{.prompt = request_.prompt_ids, .output = {}, .path = {}};
  const int32_t token = argmax ? sampling::Argmax(logits)
                               : sampling::ChooseToken(logits, request_.sampling, history, noise_, 0, scratch_);
  if (request_.num_logprobs >= 0) {
    result_.logprobs.push_back(sampling::LogprobsOf(logits, token, request_.num_logprobs));
  }
  Append(token, 0, DraftSource::kBase);
}

void Sequence::PlaceNodes() { places_ = tree_.topology.Preorder(); }

void Sequence::CommitPath(const verify::Verdict& verdict) {
  HYDRANT_CHECK(!finished_);
  path_.assign(1, 0);
  for (const tree::NodeId node : verdict.path) path_.push_back(places_[static_cast<size_t>(node)]);
  table_.CommitPath(path_, base_layers_);
}

void Sequence::Commit(const verify::Verdict& verdict) {
  size_t received = 0;  // accepted tokens that are in the text; nobody gets those behind its end
  for (; received < verdict.path.size() && !finished_; ++received) {
    Append(tree_.tokens[static_cast<size_t>(verdict.path[received])], static_cast<int32_t>(received) + 1, tree_.source);
  }
  if (!finished_) Append(verdict.bonus, 0, DraftSource::kBase);
  if (request_.num_logprobs >= 0) {
    const size_t appended = output().size() - result_.logprobs.size();
    HYDRANT_CHECK(appended <= step_logprobs_.size());
    std::move(step_logprobs_.begin(), step_logprobs_.begin() + static_cast<std::ptrdiff_t>(appended),
              std::back_inserter(result_.logprobs));
  }
  accepted_.assign(verdict.path.begin(), verdict.path.end());
  CountStep(verdict, received);
  noise_.Forget(static_cast<int64_t>(output().size()));
  if (draws_) draws_->Forget(static_cast<int64_t>(output().size()));
}

void Sequence::CountStep(const verify::Verdict& verdict, size_t received) {
  result_.num_emitted.push_back(verdict.num_emitted());
  const int64_t nodes = tree_.topology.num_nodes() - 1;
  const auto accepted = static_cast<int64_t>(received);
  result_.num_drafted += nodes;
  if (tree_.source == DraftSource::kLookup) {
    ++result_.num_lookup_steps;
    result_.num_looked_up += nodes;
    result_.num_looked_up_accepted += accepted;
  } else if (tree_.source == DraftSource::kPrediction) {
    result_.num_predicted += nodes;
    result_.num_predicted_accepted += accepted;
  } else if (tree_.source == DraftSource::kGiven) {
    result_.num_given += nodes;
    result_.num_given_accepted += accepted;
  }
  const auto depth = static_cast<size_t>(tree_.topology.max_depth());
  if (result_.depth_offered.size() < depth) {
    result_.depth_offered.resize(depth, 0);
    result_.depth_accepted.resize(depth, 0);
  }
  for (size_t d = 0; d < depth; ++d) {
    ++result_.depth_offered[d];
    if (received > d) ++result_.depth_accepted[d];
  }
}

void Sequence::Append(int32_t token, int32_t depth, DraftSource source) {
  tokens_.push_back(token);
  output_depth_.push_back(depth);
  output_source_.push_back(source);
  if (const std::optional<FinishReason> reason = end_.Push(token)) Finish(*reason);
}

void Sequence::Finish(FinishReason reason) {
  finished_ = true;
  result_.finish_reason = reason;
  end_.Close();
}

void Sequence::Cancel() {
  if (!finished_) Finish(FinishReason::kCancelled);
}

void Sequence::Emit(const EmitCallback& on_emit) {
  const int32_t ready = end_.text().num_ready();
  if (!on_emit || (finished_ && ready <= num_emitted_tokens_)) return;
  std::vector<std::string> token_text;
  std::string text;
  for (int32_t i = num_emitted_tokens_; i < ready; ++i) {
    token_text.emplace_back(end_.text().token_text(i));
    text += token_text.back();
  }
  const auto first = static_cast<size_t>(num_emitted_tokens_);
  const auto count = static_cast<size_t>(ready - num_emitted_tokens_);
  num_emitted_tokens_ = ready;
  const StepTree step{
      .parents = tree_.topology.parent(), .tokens = tree_.tokens, .accepted = accepted_, .source = tree_.source};
  const auto part = [&](const auto& of_tokens) {
    return of_tokens.empty() ? std::span(of_tokens) : std::span(of_tokens).subspan(first, count);
  };
  const Emission emission{.token_ids = output().subspan(first, count),
                          .token_depth = part(output_depth_),
                          .token_source = part(output_source_),
                          .logprobs = part(result_.logprobs),
                          .token_text = token_text,
                          .text = text,
                          .step = num_steps() > 0 ? &step : nullptr};
  if (!on_emit(emission)) Cancel();
}

GenerationResult Sequence::TakeResult() {
  result_.token_ids.assign(output().begin(), output().end());
  result_.token_depth = output_depth_;
  result_.token_source = output_source_;
  result_.has_text = has_text_;
  result_.text = end_.text().text();
  return std::move(result_);
}

}  // namespace hydrant::sequence
