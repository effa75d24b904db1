// SPDX-License-Identifier: Apache-2.0
// Where ops of a region write what only the ops after them read: one workspace for all threads, which share the work
// out, or one for each, which does all of it by itself and waits for nobody. Small work is done sooner alone: sharing
// it out costs a barrier, and half of the result has to come from another core (AMD Zen 4 guest, two threads: 0.3 us
// where their cores share a cache, more than 1 us where they do not).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/ops/queue.h"

namespace hydrant::kernels {

template <typename T>
class Workspaces {
 public:
  explicit Workspaces(int num_threads) : all_(static_cast<size_t>(num_threads)) {}

  // Outside regions: the workspaces that the next ones use.
  std::span<T> Choose(bool alone) {
    alone_ = alone;
    return in_use();
  }
  std::span<T> in_use() { return {all_.data(), alone_ ? all_.size() : 1}; }
  std::span<T> all() { return all_; }

  bool alone() const { return alone_; }
  // In a region: this thread's workspace, and the queue for ops that write there.
  T& Of(const Queue& queue) { return all_[alone_ ? static_cast<size_t>(queue.thread_idx) : 0]; }
  Queue QueueFor(const Queue& queue) const { return alone_ ? queue.Alone() : queue; }

 private:
  std::vector<T> all_;  // [threads]
  bool alone_ = false;
};

}  // namespace hydrant::kernels
