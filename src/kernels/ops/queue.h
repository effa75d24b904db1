// SPDX-License-Identifier: Apache-2.0
// Where ops run, and how their work is divided. An op may be called in two ways. Outside a region it forks and joins by
// itself. Inside a region every thread of the pool runs the same code and calls the same ops in the same order, each
// with its own Queue. An op then does this thread's share and ends in a barrier, unless its comment says otherwise. A
// forward pass is one region: a fork and join for each op would take a third of a step on a 14 M model
// (docs/benchmarks).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace hydrant::kernels {

struct KernelTable;

// CPU: a thread pool and a table of kernels. One queue is used by one thread at a time.
struct Queue {
  base::ThreadPool* pool = nullptr;
  const KernelTable* table = nullptr;
  int thread_idx = -1;  // inside a region: of this thread; -1 outside
  bool alone = false;   // inside a region: this thread does all of an op and waits for nobody

  bool in_region() const { return thread_idx >= 0; }
  // For ops on rows that no other thread touches. Small work is done sooner by every thread for itself than shared out.
  Queue Alone() const { return {pool, table, thread_idx, true}; }
};

// Below about this many operations a second thread costs more than it brings (a fork and join is 1 to 2 microseconds).
inline constexpr int64_t kOperationsWorthAThread = 16384;

// Waits inside a region until all threads are here. What they wrote before is visible afterwards. A queue that is alone
// has nobody to wait for.
inline void Sync(Queue& queue) {
  if (queue.in_region() && !queue.alone) queue.pool->Barrier();
}

// Calls fn(begin, end) for ranges that cover [0, count), shared out over the threads. Inside a region each thread gets
// at most one range, the same for the same count, and goes on without waiting for the others.
template <typename Fn>
void ForOwnItems(Queue& queue, int64_t count, int64_t operations_per_item, Fn&& fn) {
  if (!queue.in_region()) {
    const int64_t grain = kOperationsWorthAThread / std::max<int64_t>(1, operations_per_item);
    queue.pool->ParallelFor(count, std::max<int64_t>(1, grain), fn);
    return;
  }
  if (queue.alone) {
    if (count > 0) fn(int64_t{0}, count);
    return;
  }
  const int64_t threads = queue.pool->num_threads();
  const int64_t begin = count * queue.thread_idx / threads, end = count * (queue.thread_idx + 1) / threads;
  if (begin < end) fn(begin, end);
}

// The same, with a Sync at the end.
template <typename Fn>
void ForItems(Queue& queue, int64_t count, int64_t operations_per_item, Fn&& fn) {
  ForOwnItems(queue, count, operations_per_item, fn);
  Sync(queue);
}

// From about this many operations on, an op of a region takes some hundred microseconds. Then it pays to share ranges
// out to whichever thread is free.
inline constexpr int64_t kOperationsWorthSharing = 128 * kOperationsWorthAThread;

inline bool SharesItems(const Queue& queue, int64_t count, int64_t operations_per_item) {
  return queue.in_region() && !queue.alone &&
         count >= kOperationsWorthSharing / std::max<int64_t>(1, operations_per_item) &&
         count <= base::ThreadPool::kMostShared;
}

// ForItems for long work: inside a region, too, the ranges go to whichever thread is free, and a thread may get
// several.
template <typename Fn>
void ForItemsShared(Queue& queue, int64_t count, int64_t operations_per_item, Fn&& fn) {
  if (!SharesItems(queue, count, operations_per_item)) {
    ForItems(queue, count, operations_per_item, fn);
    return;
  }
  const int64_t least = std::max<int64_t>(1, kOperationsWorthAThread / std::max<int64_t>(1, operations_per_item));
  queue.pool->Share(queue.thread_idx, count, least, fn);
  Sync(queue);
}

// Runs fn(queue) on every thread as one region. A nested region is a part of the outer one.
template <typename Fn>
void Region(Queue& queue, Fn&& fn) {
  if (queue.in_region()) {
    fn(queue);
    return;
  }
  queue.pool->Run([&](int thread_idx) {
    Queue own{queue.pool, queue.table, thread_idx, false};
    fn(own);
  });
}

}  // namespace hydrant::kernels
