// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/attention_arguments.h"

namespace hydrant::engine {
namespace {

// One call.
class Scheduling {
 public:
  Scheduling(std::span<const RequestState> requests, const SchedulerLimits& limits)
      : limits_(limits), requests_(requests.begin(), requests.end()), free_(limits.num_free), rows_(limits.max_rows) {}

  Plan Run() {
    MakeRoom();
    Admit();
    ShareRows();
    return std::move(plan_);
  }

 private:
  static int32_t SlotsOf(const RequestState& request) { return std::max(request.tree_rows, request.tree_slots); }

  // Blocks that a request may need on top of what it has, for its next step: a chunk of its prompt, or a tree.
  int32_t NeedOf(const RequestState& request) const {
    const int32_t slots = request.num_left > 0 ? std::min(request.num_left, limits_.prompt_rows) : SlotsOf(request);
    return std::max(0, BlocksOf(int64_t{request.length} + slots) - request.num_blocks) + request.num_copies;
  }

  // Preempts the youngest until the others' next steps fit.
  void MakeRoom() {
    int64_t need = 0;
    for (const RequestState& request : requests_) need += request.is_running ? NeedOf(request) : 0;
    int64_t running = std::ranges::count_if(requests_, &RequestState::is_running);
    for (size_t i = requests_.size(); i-- > 0 && limits_.may_preempt && need > free_ && running > 1;) {
      RequestState& request = requests_[i];
      if (!request.is_running) continue;
      --running;
      need -= NeedOf(request);
      free_ += request.num_own;  // too few where two preempted requests share blocks
      plan_.preempted.push_back(request.id);
      request.is_running = false;
    }
    free_ -= static_cast<int32_t>(std::min<int64_t>(need, free_));
  }

  // Blocks that must be free before a waiting request is admitted: enough for what is known of it and one step, or,
  // where nobody may be preempted, for all that it may come to use.
  int32_t AdmissionNeed(const RequestState& request) const {
    if (!limits_.may_preempt) return BlocksOf(request.most_slots);
    const int64_t slots = int64_t{request.length} + request.num_left + SlotsOf(request);
    return BlocksOf(std::min<int64_t>(slots, request.most_slots)) + 1;
  }

  // Blocks that running requests have been promised but do not hold yet.
  int64_t Promised() const {
    int64_t promised = 0;
    for (const RequestState& request : requests_) {
      if (!request.is_running) continue;
      promised += std::max(0, BlocksOf(request.most_slots) - request.num_blocks) + request.num_copies;
    }
    return promised;
  }

  void Admit() {
    if (!plan_.preempted.empty()) return;  // it would be preempted next
    int64_t running = std::ranges::count_if(requests_, &RequestState::is_running);
    int64_t free = limits_.may_preempt ? free_ : limits_.num_free - Promised();
    for (RequestState& request : requests_) {
      if (request.is_running || request.is_held) continue;
      const int32_t need = AdmissionNeed(request);
      // One alone may have everything.
      if (running >= limits_.max_running || (need > free && running > 0)) return;
      free -= need;
      ++running;
      request.is_running = true;
      request.last_step = std::numeric_limits<int64_t>::max();  // takes its turn after the requests that run already
      plan_.admitted.push_back(request.id);
    }
  }

  void ShareRows() {
    std::vector<const RequestState*> order;
    for (const RequestState& request : requests_) {
      if (request.is_running) order.push_back(&request);
    }
    std::ranges::stable_sort(order, {}, &RequestState::last_step);
    int32_t prompt_rows = limits_.prompt_rows;
    for (const RequestState* request : order) {
      if (request->num_left > 0) {
        const int32_t rows = std::min({request->num_left, prompt_rows, rows_});
        if (rows <= 0) continue;
        prompt_rows -= rows;
        rows_ -= rows;
        plan_.work.push_back({.id = request->id, .prompt_rows = rows});
      } else if (std::min(request->tree_rows, limits_.max_rows) <= rows_) {
        const int32_t rows = std::min(request->tree_rows, limits_.max_rows);
        rows_ -= rows;
        plan_.work.push_back({.id = request->id, .tree_rows = rows});
      }
    }
  }

  SchedulerLimits limits_;
  std::vector<RequestState> requests_;
  int32_t free_;  // blocks that nobody's next step needs
  int32_t rows_;  // rows of the step that are not given out yet
  Plan plan_;
};

}  // namespace

int32_t BlocksOf(int64_t slots) {
  return static_cast<int32_t>((slots + kernels::kBlockPositions - 1) / kernels::kBlockPositions);
}

Plan Schedule(std::span<const RequestState> requests, const SchedulerLimits& limits) {
  return Scheduling(requests, limits).Run();
}

}  // namespace hydrant::engine
