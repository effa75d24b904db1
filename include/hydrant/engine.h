// SPDX-License-Identifier: Apache-2.0
// The public API: load a base model with draft heads, generate. See examples/generate.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hydrant/error.h"
#include "hydrant/generation.h"

namespace hydrant {

namespace load {
struct LoadedModel;  // of the library's own
}

struct EngineOptions {
  std::string model;  // folder in Hugging Face layout
  std::string draft;  // folder with heads, or of a small model; empty = plain decoding
  // Further ones, which draft beside it: the trees of a step are merged into one (at most 3).
  std::vector<std::string> more_drafts = {};
  // Of requests that name none, as GenerationRequest::tree names it. Empty = auto under the exact rule; under typical
  // acceptance, whose text depends on the tree, the heads' trees.json, else mc_sim_7b_63.
  std::string tree;
  std::string tree_memory;          // folder in which auto keeps what it learns from run to run; empty = nowhere
  int32_t threads = 0;              // 0 = as many as this process may use and the model has work for
  std::string cpu_target = "auto";  // auto | portable | avx2 | avx-vnni | avx512 | amx | amx-twin
  std::string kv_type = "auto";     // auto | f32 | bf16 | f16; auto: bf16 under packed weights, else f32
  int32_t prefill_chunk = 0;        // rows of prompts in one step; 0 = what is fastest with these weights
  // Bytes that keys and values may come to take; they are taken as they are used. 0: half of what is free, at most
  // sixteen texts of full length.
  uint64_t kv_memory = 0;
  int32_t max_running = 256;  // requests at a time; others wait
  // Where the KV cache is full: true = the youngest request gives its blocks back and is computed anew later, with the
  // same text; false = a request waits until it can run to its end.
  bool may_preempt = true;
  bool load_tokenizer = true;  // false: ids in, ids out
  // auto | stored | f32 | bf16 | w8a8 | w4a8 | w8a16 | w4a16 (docs/algorithms/low_bit_weights.md); auto: what the
  // folder holds. Floats become another format as they are loaded.
  std::string weights = "auto";
  // Tokens that heads may draft: a JSON file of ids, or the most frequent ones of a text. Empty: all.
  std::string draft_vocab;
  std::string draft_vocab_text;
  int32_t draft_vocab_size = 0;
  std::string head_weights = "auto";  // of the heads; auto with floats under a packed base: w8a8
  // Called while weights are changed, with the share that is done of the base's or of the heads'; may throw to end it.
  std::function<void(double share)> on_pack = {};
  // While it is true, what runs ends within a part of a product of matrices, also where that waits for a disk: loading
  // throws Stopped, Generate returns what it has (FinishReason::kCancelled). A signal handler may set it. It must
  // outlive the engine.
  const std::atomic<bool>* stop = nullptr;
};

// A token that ends a reply, and what says so: "generation_config.json", "config.json", "tokenizer_config.json",
// "special_tokens_map.json", "chat template NAME", or "the tokenizer's class" where nothing else names any.
struct EosToken {
  int32_t id = -1;
  std::string text;  // empty without a tokenizer
  std::vector<std::string> named_by;
  bool template_only = false;  // ends replies under the model's own chat template only
};

// What was loaded, for display.
struct EngineInfo {
  std::string model_family;     // "llama", "mistral", "qwen2", "qwen3"
  std::string drafter;          // "none", "medusa", "hydra", "hydra++", "eagle", "eagle3", "draft model"
  int32_t num_heads = 0;        // draft heads, K; 1 for EAGLE heads and draft models, which draft level by level
  int32_t draft_depth = 0;      // levels of the trees that --tree auto chooses from
  int32_t num_draft_vocab = 0;  // tokens that they may draft; 0 without heads
  std::string cpu_target;       // the active one
  std::string kv_type;          // f32 | bf16 | f16
  int32_t threads = 0;
  int32_t prefill_chunk = 0;  // in use
  int32_t vocab_size = 0;
  int32_t max_positions = 0;         // max_position_embeddings
  uint64_t kv_memory = 0;            // bytes that keys and values may come to take
  int32_t kv_positions = 0;          // of all requests together, in that
  std::string weights;               // of the base's layers: a float type or a packed format
  std::string head_weights;          // of the heads' blocks; empty without heads
  uint64_t weight_bytes = 0;         // of the base in use
  uint64_t head_weight_bytes = 0;    // of the heads
  double pack_seconds = 0;           // spent on changing weights to another format
  uint64_t packed_bytes_before = 0;  // of the layers that were changed
  uint64_t packed_bytes_after = 0;
  bool has_tokenizer = false;
  std::vector<int32_t> eos_token_ids;  // end every reply
  std::vector<EosToken> eos_tokens;    // those, then the template's where nothing else names it
  std::vector<std::string> warnings;   // such as a head count that differs from the weights, or more threads than cores
};

// What the engine is at, as of its last step.
struct EngineStats {
  int32_t num_running = 0, num_waiting = 0;  // requests
  // Of EngineInfo::kv_positions, in blocks of 32. Used by a request, of these by several at once; kept for prompts that
  // begin alike, and given up where room is short; and the rest.
  struct KvBlocks {
    int32_t used = 0, shared = 0, kept = 0, free = 0;
  } kv_blocks;
  // Since the engine began. Rows of prompts: those found in the cache are not among them.
  int64_t num_steps = 0, num_prompt_rows = 0, num_tree_rows = 0;
};

// One turn of a conversation.
struct ChatMessage {
  std::string role;  // system | user | assistant
  std::string content;
};

// Threads. Submit, Cancel and the const calls may come from any thread, also from within callbacks, and wait for
// nobody. Step, Generate and GenerateBatch wait for one another: one runs at a time, and each uses all threads of the
// engine. They call the callbacks, from their own thread; within a callback they throw UserError on the same engine,
// and a callback must not wait for another thread that calls them. Construction, assignment and destruction are for one
// thread alone. Engines know nothing of one another.
class Engine {
 public:
  // Throws UserError for anything wrong with the files or options.
  explicit Engine(const EngineOptions& options);
  // For the library's own benchmarks: over weights that come from no file.
  explicit Engine(std::unique_ptr<load::LoadedModel> loaded);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  const EngineInfo& info() const;

  // Text to ids. Special-token text is parsed when `parse_special`; BOS is added as the tokenizer files say when
  // `add_bos`.
  std::vector<int32_t> Tokenize(std::string_view text, bool parse_special, bool add_bos) const;
  std::string Detokenize(std::span<const int32_t> ids, bool skip_special) const;
  // What a token adds to a text that has begun; may be a part of a UTF-8 character. Empty where the id has no token.
  std::string TokenBytes(int32_t id) const;

  // Renders a conversation. `template_name`: a template's name, "auto" (the model's own, else none) or "none".
  // Returns false when there is no template ("none", or "auto" without one).
  bool RenderChat(std::span<const ChatMessage> messages, const std::string& template_name, std::string* prompt) const;

  // Tokens that end a reply under a template, named as RenderChat names it; they belong into
  // StopOptions::eos_token_ids. Empty without a template or a tokenizer.
  std::vector<int32_t> EndOfReply(const std::string& template_name) const;

  // Takes a request; its steps are taken by Step, among those of all others. The text of a request hangs on nothing but
  // the request. Throws UserError (empty prompt, id out of range, prompt beyond the context, settings out of range, a
  // tree that does not fit, more positions than the KV cache has). Nothing is heard of requests that are open when the
  // engine goes.
  RequestId Submit(const GenerationRequest& request, RequestCallbacks callbacks);
  // Ends a request before the next step, with what it has (FinishReason::kCancelled). False where it has ended.
  bool Cancel(RequestId id);
  // One forward pass: prompts and trees of as many requests as have room. False where nothing is left to do. All is
  // computed in the default floating-point mode (round to nearest, denormals kept), and callbacks are called in it.
  bool Step();

  // From any thread; waits for nobody.
  EngineStats stats() const;

  // One request: Submit, and steps until it is done. What went wrong is thrown.
  GenerationResult Generate(const GenerationRequest& request, const EmitCallback& on_emit = {});
  // Several. Each result equals what Generate gives for that request alone; what went wrong with one, also what Submit
  // says of it, is in its result.
  std::vector<GenerationResult> GenerateBatch(std::span<const GenerationRequest> requests);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws UserError naming the first setting that is out of range.
void ValidateRequest(const GenerationRequest& request);

}  // namespace hydrant
