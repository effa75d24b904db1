// SPDX-License-Identifier: Apache-2.0
// Cores for ranks that share a machine. A pool pins its threads to the first cores that its process may use: ranks that
// may use the same ones would all meet there.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "parallel/communicator.h"

namespace hydrant::parallel {

// For every rank to call, before it starts threads. Where several may use the same CPUs, the calling thread keeps to
// `threads` cores of its own; 0: to an equal part of what DefaultThreads says, which then is that part.
void TakeOwnCores(Communicator& ranks, int threads);

// The CPUs of one of `sharers` such ranks. Where there are too few cores, they are shared in turn.
std::vector<int> CoresOf(int sharer, int sharers, int threads, const base::CoreOrder& allowed);

}  // namespace hydrant::parallel
