// SPDX-License-Identifier: Apache-2.0
// Our own threads. A forward pass forks and joins hundreds of times for work of a few microseconds each, so workers
// spin for a while between jobs before they sleep, nothing is allocated per job, and one thread means no
// synchronisation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

namespace hydrant::base {

class ThreadPool {
 public:
  // `num_threads` counts the caller, which is thread 0 of every job. `pin` binds worker i to the i-th CPU that the
  // process may use (not the caller, whose binding is its own affair); ignored when there are more threads than CPUs.
  ThreadPool(int num_threads, bool pin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls fn(thread_idx) once on every thread and returns when all have ended. The first exception is rethrown here.
  // Jobs do not nest, and one thread at a time uses a pool.
  template <typename Fn>
  void Run(Fn&& fn) {
    if (num_threads_ == 1) {
      fn(0);
      return;
    }
    RunJob({[](void* context, int thread_idx) { (*static_cast<std::remove_reference_t<Fn>*>(context))(thread_idx); },
            const_cast<void*>(static_cast<const void*>(std::addressof(fn)))});
  }

  // Calls fn(begin, end) for ranges that cover [0, count), at most one per thread and none shorter than `grain` but the
  // last. When a single range is enough, it runs on the caller.
  template <typename Fn>
  void ParallelFor(int64_t count, int64_t grain, Fn&& fn) {
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    const int64_t pieces = num_threads_ < count / grain ? num_threads_ : count / grain;
    if (pieces <= 1) {
      fn(int64_t{0}, count);
      return;
    }
    Run([&](int thread_idx) {
      const int64_t begin = count * thread_idx / pieces, end = count * (thread_idx + 1) / pieces;
      if (thread_idx < pieces) fn(begin, end);
    });
  }

  // Inside Run: waits until every thread is here. When another thread has thrown, throws too, so that all unwind.
  void Barrier();

 private:
  struct Job {
    void (*call)(void* context, int thread_idx) = nullptr;
    void* context = nullptr;
  };
  // Thrown by Barrier when another thread has failed; never leaves RunJob.
  struct Cancelled {};

  void RunJob(Job job);
  void CallGuarded(int thread_idx);
  void WorkerLoop(int thread_idx);
  // Returns once job_number_ differs from `seen`: spins, yields, then sleeps.
  void AwaitJob(uint64_t seen);

  const int num_threads_;
  Job job_;
  bool running_ = false;  // of the caller's side only
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr first_error_;
  std::mutex mutex_;  // guards sleeping and first_error_
  std::condition_variable wake_;
  // Each on a line of its own: they are written and polled by different threads.
  alignas(64) std::atomic<uint64_t> job_number_{0};
  alignas(64) std::atomic<int> num_busy_{0};
  alignas(64) std::atomic<int> num_asleep_{0};
  alignas(64) std::atomic<int> num_at_barrier_{0};
  alignas(64) std::atomic<uint64_t> barrier_round_{0};
  std::vector<std::thread> workers_;
};

// CPUs that this process may keep busy: its affinity mask, cut to the cgroup's CPU quota (rounded up). At least 1.
int DefaultThreads();

// CPUs' worth of a cgroup v2 `cpu.max` text ("200000 100000" is 2), rounded up; 0 when there is no limit or no sense in
// it.
int CpusOfQuota(std::string_view cpu_max);

}  // namespace hydrant::base
