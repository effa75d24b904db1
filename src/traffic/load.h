// SPDX-License-Identifier: Apache-2.0
// Sends the prompts of a suite to a server, in a closed or an open loop, and takes the times of all replies.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "traffic/reply.h"
#include "traffic/request.h"
#include "traffic/server.h"
#include "traffic/suite.h"

namespace hydrant::traffic {

// A prompt of several turns is one conversation: its requests follow one another.
struct LoadPlan {
  int32_t concurrency = 1;  // closed loop: conversations that are open at a time
  double rate = 0;          // above 0, an open loop: conversations that begin in a second, on average
  int32_t max_open = 1024;  // open loop: conversations at a time; those that are due beyond are dropped
  double seconds = 0;       // after them no conversation begins; 0: no such limit
  int64_t num_prompts = 0;  // conversations; 0: each prompt once, or with `seconds` as many as there is time for
  uint64_t seed = 0;        // of the gaps between arrivals
};

struct LoadResult {
  std::vector<Reply> replies;  // in the order of their ends, failed ones among them
  int64_t num_dropped = 0;     // conversations
  double seconds = 0;          // from the first request's begin to the last reply's end
  double cpu_share = 0;        // of one core, spent by this process in that time
  bool is_stopped = false;     // by on_tick: requests that were open then are left out
};

struct LoadProgress {
  double share = 0;  // of the run, 0 to 1
  int64_t num_open = 0, num_done = 0, num_failed = 0;
};

// Called some times a second; false: stop at once.
using OnTick = std::function<bool(const LoadProgress&)>;

// Runs on the calling thread. In a closed loop a worker rests for a tenth of a second after a request that failed.
// Throws UserError where the host is not known.
LoadResult RunLoad(const Server& server, const Suite& suite, const RequestSettings& settings, const LoadPlan& plan,
                   const OnTick& on_tick);

}  // namespace hydrant::traffic
