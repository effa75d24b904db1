// SPDX-License-Identifier: Apache-2.0
// Where the ops of a region write what only the ops after them read. There is either one workspace for all threads,
// which share the work out, or one for each thread, which then does all of the work by itself and waits for nobody.
// Small work is done sooner that way: sharing it out costs a barrier, and half of the result has to come from another
// core. (On an AMD Zen 4 guest with two threads that is 0.3 us where their cores share a cache, and more than 1 us
// where they do not.)
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

  // Chooses, outside regions, the workspaces that the next regions use, and returns them.
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
