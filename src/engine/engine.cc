// SPDX-License-Identifier: Apache-2.0
#include "hydrant/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/float_mode.h"
#include "engine/end_of_turn.h"
#include "engine/loaded_model.h"
#include "engine/step.h"
#include "sequence/sequence.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/utf8.h"
#include "tree/parse.h"

namespace hydrant {

namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 24;  // of KV, which a request's table numbers

// Threads, cache and tree of an engine serve one call at a time.
class Turns {
 public:
  // Waits for its turn; ends it when it goes. Throws UserError where this thread has the turn: it would wait for ever.
  class Turn {
   public:
    Turn(Turns& turns, const char* call) : turns_(turns) {
      if (turns.holder_.load() == std::this_thread::get_id()) {
        throw UserError(std::string("a callback of Generate called ") + call + " on its own engine",
                        "call it when Generate has returned, or on another Engine");
      }
      turns.mutex_.lock();
      turns.holder_ = std::this_thread::get_id();
    }
    ~Turn() {
      turns_.holder_ = std::thread::id();
      turns_.mutex_.unlock();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
  };

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_{};
};

}  // namespace

struct Engine::Impl {
  explicit Impl(std::unique_ptr<engine::LoadedModel> model) : loaded(std::move(model)) {}

  int32_t SlotsFor(const GenerationRequest& request) const;
  void EnsurePool(int32_t num_blocks);
  void Admit(std::span<const GenerationRequest> requests);
  sequence::SequenceSetup SetupFor(const GenerationRequest& request) const;
  TreeReport ReportTree(const sequence::Sequence& sequence, const engine::StepKind& kind) const;
  static void RunAll(engine::Stepper& stepper, std::deque<sequence::Sequence>& sequences, const EmitCallback& on_emit);
  std::vector<GenerationResult> Run(std::span<const GenerationRequest> requests, const EmitCallback& on_emit);

  std::unique_ptr<engine::LoadedModel> loaded;
  std::unique_ptr<kv::BlockPool> kv_pool;
  Turns turns;
};

// KV slots that a request may come to use: its prompt and reply, and one tree beyond.
int32_t Engine::Impl::SlotsFor(const GenerationRequest& request) const {
  const int64_t tokens = static_cast<int64_t>(request.prompt_ids.size()) + request.stop.max_tokens;
  const int64_t committed = std::min<int64_t>(tokens, loaded->weights.config.max_positions);
  const int32_t own = loaded->proposer().MostNodes(request);
  int32_t tree = std::max(loaded->tree.topology.num_nodes(), 1 + own);
  int32_t depth = std::max(loaded->tree.topology.max_depth(), own);
  if (loaded->auto_trees) {
    tree = std::max(tree, loaded->auto_trees->max_rows());
    depth = std::max(depth, loaded->auto_trees->max_depth());
  }
  return static_cast<int32_t>(committed + tree + depth);
}

void Engine::Impl::EnsurePool(int32_t num_blocks) {
  if (kv_pool && kv_pool->num_blocks() >= num_blocks) return;
  kv_pool.reset();
  kv_pool = std::make_unique<kv::BlockPool>(loaded->kv_shape, num_blocks);
}

// Checks the requests, and makes room for all of them.
void Engine::Impl::Admit(std::span<const GenerationRequest> requests) {
  int64_t blocks = 0;
  for (const GenerationRequest& request : requests) {
    ValidateRequest(request);
    engine::CheckPrompt(*loaded, request.prompt_ids);
    if (loaded->tree_is_named_auto && request.accept.rule == AcceptRule::kTypical) {
      throw UserError("the tree is \"auto\" with typical acceptance, whose text would depend on measured times",
                      "name another tree, or leave it out for the heads' default one");
    }
    if (!request.stop.stop.empty() && !loaded->tokenizer) {
      throw UserError("stop strings need a tokenizer, and " + loaded->options.model + " has none");
    }
    blocks += SlotsFor(request) / kernels::kBlockPositions + 1;
  }
  if (blocks > kMostBlocks) {
    throw UserError("the requests may come to " + std::to_string(blocks * kernels::kBlockPositions) +
                        " positions together, at most " + std::to_string(kMostBlocks * kernels::kBlockPositions) +
                        " are possible",
                    "give them smaller --max-tokens (StopOptions::max_tokens), or fewer requests at a time");
  }
  EnsurePool(static_cast<int32_t>(blocks));
}

sequence::SequenceSetup Engine::Impl::SetupFor(const GenerationRequest& request) const {
  sequence::SequenceSetup setup;
  setup.tokenizer = loaded->tokenizer.get();
  setup.drafter = request.use_drafter ? &loaded->proposer() : nullptr;
  setup.pool = kv_pool.get();
  setup.kernels = loaded->queue.table;
  setup.vocab_size = loaded->info.vocab_size;
  setup.max_positions = loaded->info.max_positions;
  setup.base_layers = loaded->base_layers();
  setup.eos_token_ids = loaded->info.eos_token_ids;
  const std::vector<int32_t>& more = request.stop.eos_token_ids;
  setup.eos_token_ids.insert(setup.eos_token_ids.end(), more.begin(), more.end());
  return setup;
}

TreeReport Engine::Impl::ReportTree(const sequence::Sequence& sequence, const engine::StepKind& kind) const {
  const GenerationRequest& request = sequence.request();
  if (!request.use_drafter || !loaded->drafter) return {};
  if (loaded->auto_trees && request.accept.rule == AcceptRule::kExact) {
    return loaded->auto_trees->Report(kind, sequence.tree_steps());
  }
  TreeReport report;
  report.chosen.name = loaded->tree.name;
  report.chosen.choices = tree::ToJson(loaded->tree.topology);
  report.chosen.nodes = loaded->tree.topology.num_nodes() - 1;
  report.chosen.steps = static_cast<int64_t>(sequence.num_steps());
  return report;
}

// All prompts, then steps until every sequence has ended.
void Engine::Impl::RunAll(engine::Stepper& stepper, std::deque<sequence::Sequence>& sequences,
                          const EmitCallback& on_emit) {
  int32_t rows = 1;  // of a sequence
  for (sequence::Sequence& sequence : sequences) {
    if (!stepper.Prefill(sequence, [&] { return !on_emit || on_emit({}); })) sequence.Cancel();
    sequence.Emit(on_emit);
    rows = std::max(rows, stepper.RowsFor(sequence.request()));
  }
  const auto group = static_cast<size_t>(std::max(1, engine::kMaxRows / rows));
  std::vector<sequence::Sequence*> running;
  for (;;) {
    running.clear();
    for (sequence::Sequence& sequence : sequences) {
      if (!sequence.finished()) running.push_back(&sequence);
    }
    if (running.empty()) break;
    for (size_t first = 0; first < running.size(); first += group) {
      const size_t count = std::min(group, running.size() - first);
      stepper.Step(std::span(running).subspan(first, count));
    }
    for (sequence::Sequence* sequence : running) sequence->Emit(on_emit);
  }
}

std::vector<GenerationResult> Engine::Impl::Run(std::span<const GenerationRequest> requests,
                                                const EmitCallback& on_emit) {
  const base::DefaultFloatMode mode;  // outside the thread pool too: tokens are chosen here
  Admit(requests);
  draft::StaticTree tree(loaded->tree.topology);
  engine::Stepper stepper({.decoder = loaded->decoder.get(),
                           .drafter = &loaded->proposer(),
                           .pool = kv_pool.get(),
                           .base_layers = loaded->base_layers(),
                           .tree = &tree,
                           .auto_trees = loaded->auto_trees.get(),
                           .prefill_chunk = loaded->options.prefill_chunk,
                           .model = loaded->options.model});
  std::deque<sequence::Sequence> sequences;  // a deque: sequences do not move
  for (const GenerationRequest& request : requests) sequences.emplace_back(request, SetupFor(request));
  try {
    RunAll(stepper, sequences, on_emit);
  } catch (const Stopped&) {  // in the middle of a forward pass, of which nothing counts
    for (sequence::Sequence& sequence : sequences) sequence.Cancel();
  }
  std::vector<GenerationResult> results;
  for (sequence::Sequence& sequence : sequences) {
    TreeReport report = ReportTree(sequence, stepper.kind());
    results.push_back(sequence.TakeResult());
    results.back().tree = std::move(report);
  }
  if (loaded->auto_trees) {
    loaded->auto_trees->Save();
    results.front().tree.problem = loaded->auto_trees->problem();
  }
  return results;
}

Engine::Engine(const EngineOptions& options) : Engine(engine::LoadModel(options)) {}
Engine::Engine(std::unique_ptr<engine::LoadedModel> loaded) : impl_(std::make_unique<Impl>(std::move(loaded))) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const EngineInfo& Engine::info() const { return impl_->loaded->info; }

void Engine::UseTree(const std::string& tree) {
  const Turns::Turn turn(impl_->turns, "UseTree");
  engine::UseTree(*impl_->loaded, tree);
}

std::vector<int32_t> Engine::Tokenize(std::string_view text, bool parse_special, bool add_bos) const {
  const auto& tokenizer = impl_->loaded->tokenizer;
  if (!tokenizer) {
    throw UserError(impl_->loaded->options.model + ": has no tokenizer.json or tokenizer.model",
                    "give token ids with --prompt-ids");
  }
  return tokenizer->Encode(text, {.parse_special = parse_special, .add_bos = add_bos && tokenizer->adds_bos()});
}

std::string Engine::Detokenize(std::span<const int32_t> ids, bool skip_special) const {
  const auto& tokenizer = impl_->loaded->tokenizer;
  if (!tokenizer) throw UserError(impl_->loaded->options.model + ": has no tokenizer.json or tokenizer.model");
  // Ids that only pad the model's vocabulary have no text.
  std::vector<int32_t> with_text(ids.begin(), ids.end());
  std::erase_if(with_text,
                [&](int32_t id) { return id >= tokenizer->vocab_size() && id < impl_->loaded->info.vocab_size; });
  return tokenizer->Decode(with_text, skip_special);
}

bool Engine::RenderChat(std::span<const ChatMessage> messages, const std::string& template_name,
                        std::string* prompt) const {
  if (template_name == "none") return false;
  const std::string& folder = impl_->loaded->options.model;
  tokenizer::FolderTemplate found;
  if (template_name == "auto") {
    found = tokenizer::ReadFolderTemplate(folder);
    if (found.name.empty()) return false;
  } else {
    found = {.name = template_name, .tokens = tokenizer::ReadTemplateTokens(folder, template_name)};
  }
  std::vector<tokenizer::Message> converted;
  for (const ChatMessage& message : messages) converted.push_back({.role = message.role, .content = message.content});
  *prompt = tokenizer::RenderTemplate(found.name, converted, found.tokens, /*add_generation_prompt=*/true);
  return true;
}

std::vector<int32_t> Engine::EndOfReply(const std::string& template_name) const {
  const engine::LoadedModel& loaded = *impl_->loaded;
  const int32_t id = engine::EndOfReplyId(template_name, loaded.tokenizer.get(), loaded.options.model);
  if (id < 0 || id >= loaded.info.vocab_size) return {};
  return {id};
}

GenerationResult Engine::Generate(const GenerationRequest& request, const EmitCallback& on_emit) {
  const Turns::Turn turn(impl_->turns, "Generate");
  return std::move(impl_->Run(std::span(&request, 1), on_emit).front());
}

std::vector<GenerationResult> Engine::GenerateBatch(std::span<const GenerationRequest> requests) {
  const Turns::Turn turn(impl_->turns, "GenerateBatch");
  return impl_->Run(requests, {});
}

namespace {

void CheckRange(const char* name, double value, double min, double max) {
  if (std::isfinite(value) && value >= min && value <= max) return;
  throw UserError(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(min) + " to " +
                  std::to_string(max));
}

}  // namespace

void ValidateRequest(const GenerationRequest& request) {
  const SamplingOptions& sampling = request.sampling;
  CheckRange("temperature", static_cast<double>(sampling.temperature), 0, 100);
  CheckRange("top-k", sampling.top_k, 0, 2147483647);
  CheckRange("top-p", static_cast<double>(sampling.top_p), 0, 1);
  CheckRange("min-p", static_cast<double>(sampling.min_p), 0, 1);
  CheckRange("repetition-penalty", static_cast<double>(sampling.repetition_penalty), 1e-3, 1000);
  CheckRange("presence-penalty", static_cast<double>(sampling.presence_penalty), -100, 100);
  CheckRange("frequency-penalty", static_cast<double>(sampling.frequency_penalty), -100, 100);
  CheckRange("epsilon", static_cast<double>(request.accept.epsilon), 0, 1);
  CheckRange("alpha", static_cast<double>(request.accept.alpha), 0, 1e6);
  CheckRange("draft-p-min", static_cast<double>(request.draft_p_min), 0, 1);
  CheckRange("lookup", request.lookup.max_tokens, 0, 64);
  CheckRange("lookup-min", request.lookup.min_match, 1, 64);
  if (request.lookup.max_tokens > 0 && request.accept.rule == AcceptRule::kTypical) {
    throw UserError("lookup is on with typical acceptance, whose text would depend on it",
                    "use the exact rule, or leave lookup out");
  }
  const bool penalized =
      sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  if (penalized && request.accept.rule == AcceptRule::kTypical && sampling.temperature > 0) {
    throw UserError(
        "a penalty is set with typical acceptance, which keeps drafted tokens by the base's own distribution",
        "use the exact rule, or leave the penalties out");
  }
  CheckRange("max-tokens", request.stop.max_tokens, 1, 2147483647);
  if (request.stop.stop.size() > 64) throw UserError("more than 64 stop strings");
  for (const std::string& stop : request.stop.stop) {
    if (stop.empty()) throw UserError("a stop string is empty");
    if (stop.size() > 4096) throw UserError("a stop string is longer than 4096 bytes");
    if (!tokenizer::IsValidUtf8(stop)) throw UserError("a stop string is not valid UTF-8", "give whole characters");
  }
}

}  // namespace hydrant
