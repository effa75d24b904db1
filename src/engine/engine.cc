// SPDX-License-Identifier: Apache-2.0
#include "hydrant/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/float_mode.h"
#include "engine/core.h"
#include "load/end_of_turn.h"
#include "load/loaded_model.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/utf8.h"

namespace hydrant {

namespace {

// Threads, cache and tree of an engine serve one call at a time.
class Turns {
 public:
  // Waits for its turn; ends it when it goes. Throws UserError where this thread has the turn: it would wait for ever.
  class Turn {
   public:
    Turn(Turns& turns, const char* call) : turns_(turns) {
      if (turns.holder_.load() == std::this_thread::get_id()) {
        throw UserError(std::string("a callback called ") + call + " on its own engine",
                        "call it when Generate or Step has returned, or on another Engine");
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
  explicit Impl(std::unique_ptr<load::LoadedModel> model) : loaded(std::move(model)), core(*loaded) {
    loaded->info.kv_memory = core.kv_bytes();
    loaded->info.kv_positions = core.max_positions();
  }

  bool Step() {
    const base::DefaultFloatMode mode;  // outside the thread pool too: tokens are chosen here
    return core.Step();
  }

  std::unique_ptr<load::LoadedModel> loaded;
  engine::Core core;
  Turns turns;
};

Engine::Engine(const EngineOptions& options) : Engine(load::LoadModel(options)) {}
Engine::Engine(std::unique_ptr<load::LoadedModel> loaded) : impl_(std::make_unique<Impl>(std::move(loaded))) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const EngineInfo& Engine::info() const { return impl_->loaded->info; }

std::vector<int32_t> Engine::Tokenize(std::string_view text, bool parse_special, bool add_bos) const {
  const auto& tokenizer = impl_->loaded->tokenizer;
  if (!tokenizer) {
    throw UserError(impl_->loaded->options.model + ": has no tokenizer.json or tokenizer.model",
                    "give token ids (GenerationRequest::prompt_ids)");
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

std::string Engine::TokenBytes(int32_t id) const {
  const auto& tokenizer = impl_->loaded->tokenizer;
  if (!tokenizer || id < 0 || id >= tokenizer->vocab_size()) return "";
  return tokenizer->TokenBytes(id, /*is_first=*/false);
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
  const load::LoadedModel& loaded = *impl_->loaded;
  const int32_t id = load::EndOfReplyId(template_name, loaded.tokenizer.get(), loaded.options.model);
  if (id < 0 || id >= loaded.info.vocab_size) return {};
  return {id};
}

RequestId Engine::Submit(const GenerationRequest& request, RequestCallbacks callbacks) {
  return impl_->core.Submit(request, std::move(callbacks));
}

EngineStats Engine::stats() const { return impl_->core.stats(); }

bool Engine::Cancel(RequestId id) { return impl_->core.Cancel(id); }

bool Engine::Step() {
  const Turns::Turn turn(impl_->turns, "Step");
  return impl_->Step();
}

GenerationResult Engine::Generate(const GenerationRequest& request, const EmitCallback& on_emit) {
  const Turns::Turn turn(impl_->turns, "Generate");
  std::optional<GenerationResult> result;
  Submit(request, {.on_emit = on_emit, .on_done = [&](GenerationResult done) { result = std::move(done); }});
  while (!result) impl_->Step();
  if (result->error) std::rethrow_exception(result->error);
  return std::move(*result);
}

std::vector<GenerationResult> Engine::GenerateBatch(std::span<const GenerationRequest> requests) {
  const Turns::Turn turn(impl_->turns, "GenerateBatch");
  std::vector<GenerationResult> results(requests.size());
  size_t open = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    try {
      Submit(requests[i], {.on_done = [&results, &open, i](GenerationResult done) {
               results[i] = std::move(done);
               --open;
             }});
      ++open;
    } catch (...) {  // others may have been taken, and refer to `results`
      results[i].finish_reason = FinishReason::kError;
      results[i].error = std::current_exception();
    }
  }
  while (open > 0) impl_->Step();
  return results;
}

namespace {

void CheckRange(const char* name, double value, double min, double max) {
  if (std::isfinite(value) && value >= min && value <= max) return;
  throw UserError(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(min) + " to " +
                  std::to_string(max));
}

void CheckLookup(const GenerationRequest& request) {
  const LookupOptions& lookup = request.lookup;
  CheckRange("LookupOptions::max_tokens", lookup.max_tokens, 0, 64);
  CheckRange("LookupOptions::min_match", lookup.min_match, 0, 64);
  CheckRange("LookupOptions::max_match", lookup.max_match, 0, 64);
  if (LeastMatch(lookup) > MostMatch(lookup)) {
    throw UserError("LookupOptions::max_match is " + std::to_string(lookup.max_match) +
                    ", expected at least LookupOptions::min_match, " + std::to_string(lookup.min_match));
  }
  if (lookup.max_tokens > 0 && request.accept.rule != AcceptRule::kExact) {
    throw UserError(
        std::string("lookup is on with the ") + NameOf(request.accept.rule) + " rule, whose text would depend on it",
        "use the exact rule, or leave lookup out");
  }
}

// The trees that it cannot have are refused where trees are made (engine/trees.h).
void CheckRejection(const GenerationRequest& request) {
  if (request.accept.rule != AcceptRule::kRejection) return;
  if (request.draft_p_min > 0) {
    throw UserError(
        "GenerationRequest::draft_p_min is set with the rejection rule, which must not choose among drawn "
        "drafts by their probabilities: the text would no longer be distributed as the model's own",
        "leave it out, or use the exact rule");
  }
  if (request.accept.candidates != CandidateNoise::kAuto) {
    throw UserError(
        "AcceptOptions::candidates is set with the rejection rule, whose drafts have random numbers of "
        "their own",
        "leave it out, or use the exact rule");
  }
}

// No wider than the candidates that ReDrafter's heads leave (LevelModel::num_best), so that none of the others enters.
void CheckBeam(const BeamOptions& beam) {
  CheckRange("BeamOptions::width", beam.width, 1, 50);
  CheckRange("BeamOptions::length", beam.length, 2, tree::Topology::kMaxDepth + 1);
  if (draft::NodesOf(beam) < load::kMaxRows) return;
  throw UserError(std::to_string(beam.width) + " beams of " + std::to_string(beam.length) + " tokens may be " +
                      std::to_string(draft::NodesOf(beam)) + " drafted tokens, expected at most " +
                      std::to_string(load::kMaxRows - 1),
                  "lower BeamOptions::width or BeamOptions::length");
}

}  // namespace

void ValidateRequest(const GenerationRequest& request) {
  const SamplingOptions& sampling = request.sampling;
  CheckRange("SamplingOptions::temperature", static_cast<double>(sampling.temperature), 0, 100);
  CheckRange("SamplingOptions::top_k", sampling.top_k, 0, 2147483647);
  CheckRange("SamplingOptions::top_p", static_cast<double>(sampling.top_p), 0, 1);
  CheckRange("SamplingOptions::min_p", static_cast<double>(sampling.min_p), 0, 1);
  CheckRange("SamplingOptions::repetition_penalty", static_cast<double>(sampling.repetition_penalty), 1e-3, 1000);
  CheckRange("SamplingOptions::presence_penalty", static_cast<double>(sampling.presence_penalty), -100, 100);
  CheckRange("SamplingOptions::frequency_penalty", static_cast<double>(sampling.frequency_penalty), -100, 100);
  CheckRange("AcceptOptions::epsilon", static_cast<double>(request.accept.epsilon), 0, 1);
  CheckRange("AcceptOptions::alpha", static_cast<double>(request.accept.alpha), 0, 1e6);
  CheckRange("GenerationRequest::draft_p_min", static_cast<double>(request.draft_p_min), 0, 1);
  CheckRange("GenerationRequest::max_nodes", request.max_nodes, 0, load::kMaxRows - 1);
  CheckRange("DynamicTreeOptions::nodes", request.dynamic.nodes, 1, load::kMaxRows - 1);
  CheckRange("DynamicTreeOptions::depth", request.dynamic.depth, 1, tree::Topology::kMaxDepth);
  CheckRange("DynamicTreeOptions::width", request.dynamic.width, 1, 64);
  CheckBeam(request.beam);
  CheckRange("GenerationRequest::draft_depth", request.draft_depth, 0, tree::Topology::kMaxDepth);
  CheckLookup(request);
  CheckRejection(request);
  CheckRange("GenerationRequest::num_logprobs", request.num_logprobs, -1, 64);
  if (request.score_prompt && request.num_logprobs < 0) {
    throw UserError("GenerationRequest::score_prompt is set, and num_logprobs is -1, which asks for none",
                    "set num_logprobs to 0 at least");
  }
  const bool has_texts = !request.prediction_ids.empty() || !request.draft_ids.empty();
  if (has_texts && request.accept.rule != AcceptRule::kExact) {
    throw UserError(std::string(request.prediction_ids.empty() ? "GenerationRequest::draft_ids"
                                                               : "GenerationRequest::prediction_ids") +
                        " is given with the " + NameOf(request.accept.rule) + " rule, whose text would depend on it",
                    "use the exact rule, or leave it out");
  }
  const bool penalized =
      sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  if (penalized && request.accept.rule == AcceptRule::kTypical && sampling.temperature > 0) {
    throw UserError(
        "a penalty is set with typical acceptance, which keeps drafted tokens by the base's own distribution",
        "use the exact rule, or leave the penalties out");
  }
  CheckRange("StopOptions::max_tokens", request.stop.max_tokens, 0, 2147483647);
  if (request.stop.stop.size() > 64) throw UserError("more than 64 stop strings");
  for (const std::string& stop : request.stop.stop) {
    if (stop.empty()) throw UserError("a stop string is empty");
    if (stop.size() > 4096) throw UserError("a stop string is longer than 4096 bytes");
    if (!tokenizer::IsValidUtf8(stop)) throw UserError("a stop string is not valid UTF-8", "give whole characters");
  }
}

}  // namespace hydrant
