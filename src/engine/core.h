// SPDX-License-Identifier: Apache-2.0
// The engine behind engine.h: requests come in, steps are taken, results go out.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "engine/step.h"
#include "engine/trees.h"
#include "hydrant/engine.h"
#include "kv/kv_cache.h"
#include "load/loaded_model.h"
#include "sequence/sequence.h"

namespace hydrant::engine {

class Core {
 public:
  explicit Core(load::LoadedModel& loaded);
  ~Core();

  // From any thread. Throws UserError for a request that can never run.
  RequestId Submit(const GenerationRequest& request, RequestCallbacks callbacks);
  bool Cancel(RequestId id);
  // One thread at a time. False where nothing is left. Throws nothing: what goes wrong is in the results.
  bool Step();

  // From any thread; as of the last step.
  EngineStats stats() const;

  // What the pool has room for.
  int32_t max_positions() const { return pool_.num_blocks() * kernels::kBlockPositions; }
  uint64_t kv_bytes() const { return pool_.num_bytes(); }

 private:
  struct Task {
    RequestCallbacks callbacks;
    TreePlan tree;
    StepKind kind;  // how its last decoding step was drafted
    std::unique_ptr<sequence::Sequence> sequence;
    bool is_running = false;
    int64_t last_step = -1;
    int32_t num_preempted = 0, num_reused = 0;
    std::exception_ptr error = nullptr;
    std::atomic<bool> is_cancelled = false;
  };
  using Tasks = std::map<RequestId, std::unique_ptr<Task>>;

  TreePlan PlanFor(const GenerationRequest& request) const;
  int32_t TreeRows(const GenerationRequest& request, int32_t planned) const;
  int32_t TreeSlots(const GenerationRequest& request, const TreePlan& tree, int32_t rows) const;
  int64_t MostSlots(const GenerationRequest& request, const TreePlan& tree) const;
  void CheckFits(const GenerationRequest& request, int64_t slots) const;
  sequence::SequenceSetup SetupFor(const GenerationRequest& request, RequestId id) const;

  bool IsAnyOpen();
  void TakeIncoming();
  bool IsHeld(RequestId id, const Task& task) const;
  StepKind KindOfNext() const;
  std::vector<RequestState> States(const StepKind& kind) const;
  void Change(const Plan& plan);
  std::vector<Part> PartsOf(const Plan& plan);
  void RunStep();
  void CountRows(std::span<const Part> parts);
  void UpdateStats();
  void TakeOutcome(Task& task, const Part& part) const;
  static void Emit(Task& task);
  static void Ask(Task& task);
  void FinishEnded();
  GenerationResult ResultOf(Task& task) const;
  TreeReport ReportOf(const Task& task) const;

  load::LoadedModel* loaded_;
  std::unique_ptr<Trees> trees_;  // null: there is no drafter, or it makes its own trees
  kv::BlockPool pool_;
  Stepper stepper_;
  TreePlan no_tree_;  // of requests whose drafter fills no tree
  Tasks tasks_;       // by arrival
  int64_t step_ = 0;

  mutable std::mutex mutex_;  // guards the members down to open_
  RequestId last_id_ = 0;
  Tasks incoming_;
  EngineStats stats_;
  std::map<RequestId, Task*> open_;  // submitted and not ended: what Cancel may reach
};

}  // namespace hydrant::engine
