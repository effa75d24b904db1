// SPDX-License-Identifier: Apache-2.0
// Who does what in the next step. Pure: it knows numbers of rows and blocks, no model, no clock, no text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hydrant/generation.h"

namespace hydrant::engine {

// A request as the scheduler sees it. It waits until it is admitted; then it computes its prompt (`num_left` > 0), then
// it decodes.
struct RequestState {
  RequestId id = 0;
  bool is_running = false;
  bool is_held = false;    // waiting: another one is computing the beginning of its prompt
  int32_t num_left = 0;    // prompt rows that are still to be computed
  int32_t tree_rows = 1;   // most rows of a step when it decodes, the root included
  int32_t tree_slots = 0;  // slots behind the committed ones that such a step uses, where more than tree_rows
  int32_t length = 0;      // positions committed
  int32_t num_blocks = 0;  // in its table
  int32_t num_own = 0;     // blocks that nobody else uses: what a preemption frees
  int32_t num_copies = 0;  // shared blocks that its next rows make it copy
  int32_t most_slots = 0;  // slots that it may come to use
  int64_t last_step = -1;  // the last step that had work for it; -1: none yet
};

struct SchedulerLimits {
  int32_t max_rows = 512;     // of a step
  int32_t prompt_rows = 256;  // of those, for prompts
  int32_t max_running = 256;  // requests
  int32_t num_blocks = 0;     // of the pool
  int32_t num_free = 0;       // of those, now
  bool may_preempt = true;    // false: only requests that can finish are admitted
};

// Rows of one request: of its prompt, or at most so many of a tree.
struct Work {
  RequestId id = 0;
  int32_t prompt_rows = 0;
  int32_t tree_rows = 0;

  bool operator==(const Work&) const = default;
};

struct Plan {
  std::vector<RequestId> preempted;  // give all their blocks back and wait again, to be computed anew
  std::vector<RequestId> admitted;
  std::vector<Work> work;
};

// Number of blocks that so many slots take.
int32_t BlocksOf(int64_t slots);

// `requests` in order of id. What it promises:
// - Requests are admitted in order, as soon as there are blocks for their prompt and one step; none overtakes another
//   but one that is held.
// - Every running request has work at least once in as many steps as requests run: those that waited longest come
// first.
// - Where blocks are short the youngest are preempted, and the oldest never is: so each ends at last.
// - No step has more rows, or needs more blocks, than there are.
Plan Schedule(std::span<const RequestState> requests, const SchedulerLimits& limits);

}  // namespace hydrant::engine
