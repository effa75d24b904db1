// SPDX-License-Identifier: Apache-2.0
#include "engine/core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/free_memory.h"
#include "hydrant/error.h"

namespace hydrant::engine {
namespace {

// How much memory keys and values get where the user does not say: kMemoryShare of the free memory, or more where one
// text of full length needs it, up to kMostMemoryShare; but never more than kMostTexts texts of full length need.
constexpr double kMemoryShare = 0.5, kMostMemoryShare = 0.9;
constexpr int64_t kMostTexts = 16;

// Waiting requests whose prompts are compared with those of others in one step; the requests behind them wait.
constexpr int32_t kMostCompared = 16;

int32_t BlocksInPool(const load::LoadedModel& loaded) {
  const int64_t block_bytes = std::max<int64_t>(1, kv::BlockBytes(loaded.kv_shape));
  const auto bytes = static_cast<int64_t>(std::min<uint64_t>(loaded.options.kv_memory, INT64_MAX));
  if (bytes > 0) {
    if (bytes < block_bytes) {
      throw UserError("EngineOptions::kv_memory is " + base::MemoryText(loaded.options.kv_memory) +
                          ", and a block of " + std::to_string(kernels::kBlockPositions) + " positions takes " +
                          base::MemoryText(static_cast<uint64_t>(block_bytes)),
                      "give more, or leave it out");
    }
    return static_cast<int32_t>(std::min<int64_t>(bytes / block_bytes, INT32_MAX));
  }
  const double free = static_cast<double>(base::FreeNow().own) / static_cast<double>(block_bytes);
  const auto text = static_cast<double>(BlocksOf(loaded.weights.config.max_positions + int64_t{load::kMaxRows}));
  const double share = std::max(kMemoryShare * free, std::min(kMostMemoryShare * free, text));
  return static_cast<int32_t>(std::clamp<double>(share, 1, static_cast<double>(kMostTexts) * text));
}

size_t CommonLength(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

Core::Core(load::LoadedModel& loaded)
    : loaded_(&loaded),
      trees_(loaded.drafter && loaded.drafter->FillsShapes() ? std::make_unique<Trees>(loaded) : nullptr),
      pool_(loaded.kv_shape, BlocksInPool(loaded)),
      stepper_({.decoder = loaded.decoder.get(),
                .pool = loaded.pool.get(),
                .drafter = &loaded.proposer(),
                .blocks = &pool_,
                .base_layers = loaded.base_layers(),
                .model = loaded.options.model}),
      no_tree_{.name = "none", .choices = "[]", .shape = std::make_shared<draft::StaticTree>(tree::Topology())} {
  if (loaded.options.max_running < 1) {
    throw UserError("EngineOptions::max_running is " + std::to_string(loaded.options.max_running) +
                    ", expected 1 at least");
  }
  UpdateStats();
}

Core::~Core() {
  if (trees_ && !tasks_.empty()) trees_->auto_trees().Save();
}

TreePlan Core::PlanFor(const GenerationRequest& request) const {
  if (trees_ && request.use_drafter) return trees_->For(request);
  if (!loaded_->drafter) {
    if (!request.tree.empty()) throw load::NeedsHeads("EngineOptions::tree");
    if (request.draft_depth > 0) throw load::NeedsHeads("GenerationRequest::draft_depth");
  }
  return no_tree_;
}

// Most rows of its steps, where its tree has `planned` ones.
int32_t Core::TreeRows(const GenerationRequest& request, int32_t planned) const {
  if (!request.use_drafter) return 1;
  planned = 1 + (planned - 1) * loaded_->proposer().num_trees();
  const int32_t most = request.max_nodes > 0 ? std::min(load::kMaxRows, 1 + request.max_nodes) : load::kMaxRows;
  return std::min(most, std::max(planned, 1 + loaded_->proposer().MostNodes(request)));
}

// Slots behind the committed ones, where its tree has `rows`.
int32_t Core::TreeSlots(const GenerationRequest& request, const TreePlan& tree, int32_t rows) const {
  if (!request.use_drafter) return rows;
  if (tree.is_dynamic) return std::max(rows, draft::SlotsOf(tree.dynamic));
  if (tree.auto_trees != nullptr && tree.auto_trees->grows()) return std::max(rows, tree.auto_trees->max_slots());
  return tree.is_beam ? std::max(rows, draft::SlotsOf(tree.beam)) : rows;
}

// Slots for its prompt, its reply and one tree behind them.
int64_t Core::MostSlots(const GenerationRequest& request, const TreePlan& tree) const {
  const int64_t tokens = static_cast<int64_t>(request.prompt_ids.size()) + request.stop.max_tokens;
  return std::min<int64_t>(tokens, loaded_->weights.config.max_positions) +
         TreeSlots(request, tree, TreeRows(request, tree.max_rows()));
}

void Core::CheckFits(const GenerationRequest& request, int64_t slots) const {
  if (slots <= max_positions()) return;
  const std::string why = loaded_->options.kv_memory == 0 ? ", by what was free when the model was loaded" : "";
  throw UserError("the prompt of " + std::to_string(request.prompt_ids.size()) + " tokens and a reply of " +
                      std::to_string(request.stop.max_tokens) + " may come to " + std::to_string(slots) +
                      " positions with a tree, and the KV cache has room for " + std::to_string(max_positions()) +
                      " (" + base::MemoryText(kv_bytes()) + why + ")",
                  "ask for fewer tokens, or give the KV cache more memory (EngineOptions::kv_memory)");
}

sequence::SequenceSetup Core::SetupFor(const GenerationRequest& request, RequestId id) const {
  const load::LoadedModel& loaded = *loaded_;
  sequence::SequenceSetup setup;
  setup.tokenizer = loaded.tokenizer.get();
  setup.drafter = request.use_drafter ? &loaded_->proposer() : nullptr;
  setup.pool = const_cast<kv::BlockPool*>(&pool_);
  setup.kernels = loaded.queue.table;
  setup.vocab_size = loaded.info.vocab_size;
  setup.max_positions = loaded.info.max_positions;
  setup.base_layers = loaded.base_layers();
  setup.eos_token_ids = loaded.info.eos_token_ids;
  const std::vector<int32_t>& more = request.stop.eos_token_ids;
  setup.eos_token_ids.insert(setup.eos_token_ids.end(), more.begin(), more.end());
  // A request without a scope gets one of its own, so that after a preemption it finds the blocks that it has computed.
  setup.shares_its_scope = !request.cache_scope.empty();
  setup.cache_scope = request.cache_scope.empty() ? "request " + std::to_string(id) : "scope " + request.cache_scope;
  return setup;
}

RequestId Core::Submit(const GenerationRequest& request, RequestCallbacks callbacks) {
  ValidateRequest(request);
  load::CheckPrompt(*loaded_, request.prompt_ids);
  load::CheckIds(*loaded_, request.prediction_ids, "GenerationRequest::prediction_ids");
  load::CheckIds(*loaded_, request.draft_ids, "GenerationRequest::draft_ids");
  if (!request.stop.stop.empty() && !loaded_->tokenizer) {
    throw UserError("stop strings need a tokenizer, and " + loaded_->options.model + " has none");
  }
  auto task = std::make_unique<Task>();
  task->tree = PlanFor(request);
  CheckFits(request, MostSlots(request, task->tree));
  task->callbacks = std::move(callbacks);
  const std::lock_guard lock(mutex_);
  const RequestId id = ++last_id_;
  task->sequence = std::make_unique<sequence::Sequence>(request, SetupFor(request, id));
  Task* const taken = incoming_.emplace(id, std::move(task)).first->second.get();
  open_.emplace(id, taken);
  return id;
}

bool Core::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto task = open_.find(id);
  if (task == open_.end()) return false;
  task->second->is_cancelled = true;
  return true;
}

bool Core::Step() {
  TakeIncoming();
  FinishEnded();
  if (tasks_.empty()) {
    UpdateStats();
    return IsAnyOpen();
  }
  try {
    RunStep();
  } catch (const Stopped&) {  // in the middle of a forward pass, of which nothing counts
    for (const auto& [id, task] : tasks_) task->sequence->Cancel();
  } catch (...) {  // concerns no single request: all are told, as nobody knows how far the step went
    for (const auto& [id, task] : tasks_) task->error = std::current_exception();
  }
  FinishEnded();
  UpdateStats();
  return IsAnyOpen();
}

EngineStats Core::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting = static_cast<int32_t>(open_.size()) - stats.num_running;
  return stats;
}

void Core::UpdateStats() {
  const auto running = std::ranges::count_if(tasks_, [](const auto& task) { return task.second->is_running; });
  const std::lock_guard lock(mutex_);
  stats_.num_running = static_cast<int32_t>(running);
  stats_.kv_blocks = {.used = pool_.num_blocks() - pool_.num_free(),
                      .shared = pool_.num_shared(),
                      .kept = pool_.num_kept(),
                      .free = pool_.num_free() - pool_.num_kept()};
}

// Counts a request that a callback has just submitted, too.
bool Core::IsAnyOpen() {
  const std::lock_guard lock(mutex_);
  return !open_.empty();
}

void Core::RunStep() {
  const StepKind kind = KindOfNext();
  const Plan plan = Schedule(States(kind), {.max_rows = load::kMaxRows,
                                            .prompt_rows = loaded_->options.prefill_chunk,
                                            .max_running = loaded_->options.max_running,
                                            .num_blocks = pool_.num_blocks(),
                                            .num_free = pool_.num_free(),
                                            .may_preempt = loaded_->options.may_preempt});
  Change(plan);
  std::vector<Part> parts = PartsOf(plan);
  if (parts.empty()) return;
  stepper_.Step(parts, kind);
  CountRows(parts);
  std::map<const sequence::Sequence*, const Part*> by_sequence;
  for (const Part& part : parts) by_sequence.emplace(part.sequence, &part);
  for (const auto& [id, task] : tasks_) {
    const auto part = by_sequence.find(task->sequence.get());
    if (part != by_sequence.end()) TakeOutcome(*task, *part->second);
  }
}

void Core::CountRows(std::span<const Part> parts) {
  const std::lock_guard lock(mutex_);
  ++stats_.num_steps;
  for (const Part& part : parts) {
    if (part.prompt_rows > 0) {
      stats_.num_prompt_rows += part.prompt_rows;
    } else {
      stats_.num_tree_rows += part.sequence->tree().topology.num_nodes();
    }
  }
}

void Core::TakeOutcome(Task& task, const Part& part) const {
  task.error = part.error;
  if (task.error) return;
  if (part.prompt_rows == 0) task.kind = stepper_.kind();
  task.sequence->Publish();
  if (!task.sequence->output().empty()) Emit(task);
}

void Core::TakeIncoming() {
  const std::lock_guard lock(mutex_);
  tasks_.merge(incoming_);
  for (const auto& [id, task] : tasks_) {
    if (task->is_cancelled) task->sequence->Cancel();
  }
}

// Whether this request should wait because another one is computing the beginning of its prompt, or will do so earlier.
// Once that is done, this request finds the blocks.
bool Core::IsHeld(RequestId id, const Task& task) const {
  const GenerationRequest& request = task.sequence->request();
  for (const auto& [other_id, other] : tasks_) {
    const sequence::Sequence& ahead = *other->sequence;
    if (other_id == id || (other_id > id && !other->is_running) || ahead.num_left() == 0) continue;
    if (ahead.request().cache_scope != request.cache_scope) continue;
    const size_t common = CommonLength(request.prompt_ids, ahead.request().prompt_ids);
    const auto blocks = static_cast<int32_t>(common / kernels::kBlockPositions);
    if (blocks * kernels::kBlockPositions <= ahead.table().length()) continue;
    const std::span<const int32_t> beginning = std::span(request.prompt_ids).first(common);
    if (pool_.NumKnown(task.sequence->cache_scope(), beginning) < blocks) return true;
  }
  return false;
}

// Of those that decode already: a step may be planned for more than there is room for, never for fewer.
StepKind Core::KindOfNext() const {
  size_t sequences = 0;
  bool sampled = false, pruned = false;
  for (const auto& [id, task] : tasks_) {
    if (!task->is_running || task->sequence->num_left() > 0) continue;
    ++sequences;
    sampled = sampled || task->sequence->request().sampling.temperature > 0;
    pruned = pruned || task->sequence->request().draft_p_min > 0;
  }
  return KindOfStep(sequences, sampled, pruned);
}

std::vector<RequestState> Core::States(const StepKind& kind) const {
  std::vector<RequestState> states;
  int32_t scoped = 0;  // of the waiting requests, those that have a scope
  for (const auto& [id, task] : tasks_) {
    const sequence::Sequence& sequence = *task->sequence;
    const GenerationRequest& request = sequence.request();
    const bool may_be_held = !task->is_running && !request.cache_scope.empty() && !request.score_prompt;
    const bool is_auto = task->tree.auto_trees != nullptr && kind.sequences > 0;
    const int32_t rows = TreeRows(request, is_auto ? task->tree.auto_trees->RowsOf(kind) : task->tree.max_rows());
    states.push_back({.id = id,
                      .is_running = task->is_running,
                      .is_held = may_be_held && (++scoped > kMostCompared || IsHeld(id, *task)),
                      .num_left = sequence.num_left(),
                      .tree_rows = rows,
                      .tree_slots = TreeSlots(request, task->tree, rows),
                      .length = sequence.table().length(),
                      .num_blocks = sequence.table().num_blocks(),
                      .num_own = sequence.table().num_own(),
                      .num_copies = sequence.table().num_copies(),
                      .most_slots = static_cast<int32_t>(MostSlots(request, task->tree)),
                      .last_step = task->last_step});
  }
  return states;
}

void Core::Change(const Plan& plan) {
  ++step_;
  for (const RequestId id : plan.preempted) {
    Task& task = *tasks_.at(id);
    task.sequence->Release();
    task.is_running = false;
    ++task.num_preempted;
  }
  for (const RequestId id : plan.admitted) {
    Task& task = *tasks_.at(id);
    const int32_t reused = task.sequence->Start();
    if (task.num_preempted == 0) task.num_reused = reused;
    task.is_running = true;
    task.last_step = step_;
  }
}

// The parts of the step that the scheduler has planned. Rows whose keys and values an admitted request found in the
// pool need no work.
std::vector<Part> Core::PartsOf(const Plan& plan) {
  std::vector<Part> parts;
  for (const Work& work : plan.work) {
    Task& task = *tasks_.at(work.id);
    const int32_t rows = std::min(work.prompt_rows, task.sequence->num_left());
    const bool goes_on = rows > 0 && task.last_step != step_;  // a prompt of which an earlier step has computed a part
    task.last_step = step_;
    if (goes_on && task.sequence->output().empty()) {
      Ask(task);
      if (task.error || task.sequence->finished()) continue;
    }
    parts.push_back({.sequence = task.sequence.get(),
                     .prompt_rows = rows,
                     .tree_rows = work.tree_rows,
                     .shape = task.tree.shape.get(),
                     .auto_trees = task.tree.auto_trees,
                     .dynamic = task.tree.is_dynamic ? &task.tree.dynamic : nullptr,
                     .beam = task.tree.is_beam ? &task.tree.beam : nullptr});
  }
  return parts;
}

// Emits what may be shown. An exception of the callback ends its own request only.
void Core::Emit(Task& task) {
  try {
    task.sequence->Emit(task.callbacks.on_emit);
  } catch (...) {
    task.error = std::current_exception();
  }
}

// Between the parts of a prompt, asks the callback whether to go on.
void Core::Ask(Task& task) {
  try {
    if (task.callbacks.on_emit && !task.callbacks.on_emit({})) task.sequence->Cancel();
  } catch (...) {
    task.error = std::current_exception();
  }
}

void Core::FinishEnded() {
  for (auto at = tasks_.begin(); at != tasks_.end();) {
    Task& task = *at->second;
    if (!task.error && !task.sequence->finished()) {
      ++at;
      continue;
    }
    const std::unique_ptr<Task> ended = std::move(at->second);
    {
      const std::lock_guard lock(mutex_);
      open_.erase(at->first);
    }
    at = tasks_.erase(at);
    GenerationResult result = ResultOf(*ended);
    ended->sequence->End();
    try {
      if (ended->callbacks.on_done) ended->callbacks.on_done(std::move(result));
    } catch (...) {  // callbacks must not throw here; the results of others must go out all the same
    }
  }
}

GenerationResult Core::ResultOf(Task& task) const {
  TreeReport report = ReportOf(task);
  GenerationResult result = task.sequence->TakeResult();
  result.tree = std::move(report);
  result.num_reused = task.num_reused;
  result.num_preempted = task.num_preempted;
  if (trees_ && tasks_.empty()) {
    trees_->auto_trees().Save();
    if (task.tree.auto_trees != nullptr) result.tree.problem = trees_->auto_trees().problem();
  }
  if (task.error) {
    result.finish_reason = FinishReason::kError;
    result.error = task.error;
  }
  return result;
}

TreeReport Core::ReportOf(const Task& task) const {
  const GenerationRequest& request = task.sequence->request();
  if (!request.use_drafter || !loaded_->drafter) return {};
  TreeReport report;
  if (task.tree.auto_trees != nullptr) {
    report = task.tree.auto_trees->Report(task.kind, task.sequence->tree_steps());
  } else {
    report.chosen.name = task.tree.name;
    report.chosen.choices = task.tree.choices;
    report.chosen.nodes = task.tree.max_rows() - 1;
    report.chosen.steps = static_cast<int64_t>(task.sequence->num_steps());
  }
  report.most_nodes = task.tree.max_rows() - 1;
  return report;
}

}  // namespace hydrant::engine
