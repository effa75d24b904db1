// SPDX-License-Identifier: Apache-2.0
// All state of one request: tokens, KV blocks, the drafter's memory, the noise of its positions, stop rules,
// statistics.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "hydrant/generation.h"
#include "kv/kv_cache.h"
#include "sampling/choose.h"
#include "sequence/reply_end.h"
#include "tree/token_tree.h"
#include "verify/verify.h"

namespace hydrant::sequence {

// What a sequence needs from its engine. Everything pointed to outlives it.
struct SequenceSetup {
  const tokenizer::Tokenizer* tokenizer = nullptr;  // null: no text
  const draft::Drafter* drafter = nullptr;          // null: plain decoding
  kv::BlockPool* pool = nullptr;
  const kernels::KernelTable* kernels = nullptr;
  int32_t vocab_size = 0;
  int32_t max_positions = 0;
  kv::LayerRange base_layers = {};  // of the pool
  std::vector<int32_t> eos_token_ids;
  std::string cache_scope = {};   // requests of one scope find each other's blocks (kv/block_index.h)
  bool shares_its_scope = false;  // whether other sequences have that scope
};

class Sequence {
 public:
  Sequence(const GenerationRequest& request, const SequenceSetup& setup);

  // Begins, or begins again after Release. Takes from the pool what it has of this text, as far as the drafter can go
  // on from it. Returns the number of positions taken.
  int32_t Start();
  // Gives all blocks back. What was generated stays, and is computed anew after Start.
  void Release();
  // Releases what will not be wanted again. The blocks of a scope of its own are removed from the index, too.
  void End();

  // The token after the prompt, from the prompt's last logits; none where none is wanted.
  void TakeFirst(std::span<const float> logits);
  // The outcome of one step. First its keys and values: those of the base model's layers for the accepted nodes.
  void CommitPath(const verify::Verdict& verdict);
  // With log probabilities of its tokens, where the request asks for them: those of the accepted nodes and the bonus.
  void TakeLogprobs(std::vector<TokenLogprobs> logprobs) { step_logprobs_ = std::move(logprobs); }
  // Of the tokens behind row `first` of the prompt, and the next rows.
  void TakePromptLogprobs(size_t first, std::span<const TokenLogprobs> logprobs);
  // Whether the logits of all rows of the prompt are wanted.
  bool scores_prompt() const { return request_.score_prompt && output().empty(); }
  // Then its tokens: appends those that are emitted, and applies the stop rules.
  void Commit(const verify::Verdict& verdict);
  // Lets others of its scope find the blocks that are full.
  void Publish();
  // Stops at the caller's wish.
  void Cancel();

  // Hands tokens that may be shown to the callback; cancels when it returns false.
  void Emit(const EmitCallback& on_emit);
  GenerationResult TakeResult();

  // Gives the tree's nodes their places: call before the step that is committed.
  void PlaceNodes();
  // [N] The place of each node, counted from the root's: in slots, where its keys and values go, and in rows of the
  // batch.
  std::span<const int32_t> places() const { return places_; }
  // Deepest tree whose rows all stay below max_positions.
  int32_t depth_room() const { return max_positions_ - 1 - table_.length(); }

  const GenerationRequest& request() const { return request_; }
  bool finished() const { return finished_; }
  const std::string& cache_scope() const { return cache_scope_; }
  // All tokens: the prompt's, then the output's.
  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const int32_t> output() const { return tokens().subspan(request_.prompt_ids.size()); }
  // Of the tokens before the next root, how many have no keys and values yet.
  int32_t num_left() const {
    return static_cast<int32_t>(tokens_.size()) - (output().empty() ? 0 : 1) - table_.length();
  }
  kv::BlockTable& table() { return table_; }
  const kv::BlockTable& table() const { return table_; }
  tree::TokenTree& tree() { return tree_; }
  draft::DraftState* draft_state() { return draft_state_.get(); }
  bool drafts() const { return drafter_ != nullptr; }
  sampling::NoiseCache& noise() { return noise_; }
  // With which drafts are drawn; null: they are not.
  sampling::NoiseCache* draws() { return draws_ ? &*draws_ : nullptr; }
  verify::Verifier& verifier() { return verifier_; }
  PhaseTimes& times() { return result_.phase_ms; }
  // Counts a step with the given tree, one of `count`.
  void CountTree(size_t tree, size_t count) {
    tree_steps_.resize(count, 0);
    ++tree_steps_[tree];
  }
  std::span<const int64_t> tree_steps() const { return tree_steps_; }
  size_t num_steps() const { return result_.num_emitted.size(); }

 private:
  void Append(int32_t token, int32_t depth, DraftSource source);
  void Finish(FinishReason reason);
  void CountStep(const verify::Verdict& verdict, size_t received);

  GenerationRequest request_;
  int32_t max_positions_;
  kv::LayerRange base_layers_;
  std::string cache_scope_;
  bool shares_its_scope_;
  const draft::Drafter* drafter_;
  std::vector<int32_t> tokens_, output_depth_;
  std::vector<DraftSource> output_source_;
  kv::BlockTable table_;
  std::unique_ptr<draft::DraftState> draft_state_;
  sampling::NoiseCache noise_;
  std::optional<sampling::NoiseCache> draws_;
  verify::Verifier verifier_;
  tree::TokenTree tree_;
  ReplyEnd end_;
  std::vector<float> scratch_;  // [V]
  std::vector<int32_t> places_;
  std::vector<int32_t> path_;        // of the root and the accepted nodes
  std::vector<int64_t> tree_steps_;  // by auto's trees
  std::vector<int32_t> accepted_;    // nodes of the last step
  std::vector<TokenLogprobs> step_logprobs_;
  bool has_text_;
  bool finished_ = false;
  int32_t num_emitted_tokens_ = 0;  // handed to the callback so far
  GenerationResult result_;
};

}  // namespace hydrant::sequence
