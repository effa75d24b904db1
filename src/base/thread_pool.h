// SPDX-License-Identifier: Apache-2.0
// Our own threads. A forward pass forks and joins hundreds of times for work of a few microseconds each, so workers
// spin for a while between jobs before they sleep, nothing is allocated per job, and one thread means no
// synchronisation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/float_mode.h"

namespace hydrant::base {

class ThreadPool {
 public:
  // `num_threads` counts the caller, which is thread 0 of every job. `pin` binds worker i to the i-th of the CPUs that
  // the process may use, in the order of CoresFirst (not the caller, whose binding is its own affair); ignored when
  // there are more threads than CPUs. Throws UserError where the system does not give that many threads.
  ThreadPool(int num_threads, bool pin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // From now on jobs throw hydrant::Stopped within a piece of their work once *asked is true, until it is false again:
  // also where a piece waits for a disk, hundreds of pieces are between two looks of the caller's own. Null: never.
  // Set while no job runs; *asked must outlive the pool.
  void StopWhen(const std::atomic<bool>* asked) { asked_ = asked; }

  // Calls fn(thread_idx) once on every thread and returns when all have ended. The first exception is rethrown here.
  // Jobs do not nest, and one thread at a time uses a pool. All threads compute in the default floating-point mode,
  // whatever the caller's is.
  template <typename Fn>
  void Run(Fn&& fn) {
    const DefaultFloatMode mode;
    LookWhetherToStop();
    if (num_threads_ == 1) {
      fn(0);
      return;
    }
    RunJob({[](void* context, int thread_idx) { (*static_cast<std::remove_reference_t<Fn>*>(context))(thread_idx); },
            const_cast<void*>(static_cast<const void*>(std::addressof(fn)))});
  }

  // Calls fn(begin, end) for ranges that cover [0, count), none shorter than `grain` but when count is. Threads take
  // the ranges as they come free: on a busy machine the caller does the share of a worker that is not running. A single
  // range runs on the caller. All ranges are called, and the exception of the first of them in order is rethrown: which
  // one does not depend on time.
  template <typename Fn>
  void ParallelFor(int64_t count, int64_t grain, Fn&& fn) {
    if (count <= 0) return;
    const DefaultFloatMode mode;
    const int64_t most = num_threads_ == 1 ? 1 : kRangesPerThread * num_threads_;
    const int64_t wanted = count / (grain > 1 ? grain : 1);
    const int64_t pieces = wanted < most ? wanted : most;
    LookWhetherToStop();
    if (pieces <= 1) {
      fn(int64_t{0}, count);
      return;
    }
    const auto piece = [&](int64_t index) {
      LookWhetherToStop();
      fn(count * index / pieces, count * (index + 1) / pieces);
    };
    RunPieces({[](void* context, int64_t index) { (*static_cast<decltype(piece)*>(context))(index); },
               const_cast<void*>(static_cast<const void*>(std::addressof(piece)))},
              pieces);
  }

  // Inside Run: calls fn(begin, end) for ranges that cover [0, count), count <= kMostShared, spread over the threads.
  // Every thread calls this, in the same order with the same numbers, and then Barrier. It begins with a contiguous
  // part of its own, of which it takes half of what is left at a time, at least `least`; after that it takes from the
  // ends of the others' parts, so that a thread that is slow or interrupted does not keep them waiting.
  template <typename Fn>
  void Share(int thread_idx, int64_t count, int64_t least, Fn&& fn) {
    LookWhetherToStop();
    if (num_threads_ == 1) {
      const int64_t part = count / kLooksAlone > least ? (count + kLooksAlone - 1) / kLooksAlone : count;
      for (int64_t begin = 0; begin < count; begin += part) {
        LookWhetherToStop();
        fn(begin, begin + part < count ? begin + part : count);
      }
      return;
    }
    const uint32_t number = ++parts_[static_cast<size_t>(thread_idx)].number;
    for (int i = 0; i < num_threads_; ++i) {
      const int part = (thread_idx + i) % num_threads_;
      int64_t begin = 0, end = 0;
      while (Take(part, i == 0, number, count, least, &begin, &end)) {
        fn(begin, end);
        LookWhetherToStop();
      }
    }
  }
  static constexpr int64_t kMostShared = (int64_t{1} << 16) - 1;  // the largest `count` of Share

  // Inside Run: waits until every thread is here. When another thread has thrown, throws too, so that all unwind.
  // Throws Stopped too.
  void Barrier();

 private:
  struct Job {
    void (*call)(void* context, int thread_idx) = nullptr;
    void* context = nullptr;
  };
  struct PieceJob {
    void (*call)(void* context, int64_t index) = nullptr;
    void* context = nullptr;
  };
  // A thread's part of what Share shares out. `left` is the call's number << 32 | begin << 16 | end of what nobody has
  // taken; one with another number is of the call before and stands for a part that is still whole. So nobody has to
  // write it anew for each call, and whoever comes first may take from a part whose thread is late.
  struct alignas(64) Part {
    std::atomic<uint64_t> left{0};
    uint32_t number = 0;  // calls of this part's thread
  };
  // Some more ranges than threads, so that a slow or interrupted thread leaves work to the others.
  static constexpr int64_t kRangesPerThread = 3;
  // Ranges of a Share on one thread, between which it looks whether to stop.
  static constexpr int64_t kLooksAlone = 8;
  // Thrown by Barrier when another thread has failed; never leaves RunJob.
  struct Cancelled {};

  void LookWhetherToStop() const {
    if (asked_ != nullptr && asked_->load(std::memory_order_relaxed)) ThrowStopped();
  }
  [[noreturn]] static void ThrowStopped();
  void StopWorkers();
  void RunJob(Job job);
  void RunPieces(PieceJob job, int64_t pieces);
  void TakePieces();
  bool HasPieces() const;
  // Takes a range from the front or the back of what is left of a part; false when nothing is.
  bool Take(int part, bool front, uint32_t number, int64_t count, int64_t least, int64_t* begin, int64_t* end);
  void WakeSleepers();
  // Of several errors the one of the lowest rank is kept, among equals the first in time.
  template <typename Fn>
  void Guarded(int64_t rank, const Fn& fn);
  void RethrowFailure();
  void WorkerLoop(int thread_idx);
  // Returns once job_number_ differs from `seen` or there are pieces: spins, yields, then sleeps.
  void AwaitJob(uint64_t seen);

  const int num_threads_;
  const std::atomic<bool>* asked_ = nullptr;  // whether to stop
  Job job_;
  PieceJob piece_job_;
  bool running_ = false;  // of the caller's side only
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  int64_t error_rank_ = 0;
  std::mutex mutex_;  // guards sleeping and the error
  std::condition_variable wake_;
  // Each on a line of its own: they are written and polled by different threads.
  alignas(64) std::atomic<uint64_t> job_number_{0};
  // Job number << 32 | number of pieces << 16 | next piece to take. Who moves it on from below the number owns that
  // piece, and the job cannot end before the piece has: a worker that comes late finds nothing to take and touches
  // nothing else.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> num_pieces_done_{0};
  alignas(64) std::atomic<int> num_busy_{0};
  alignas(64) std::atomic<int> num_asleep_{0};
  alignas(64) std::atomic<uint64_t> num_at_barrier_{0};  // over all barriers of the job
  std::unique_ptr<Part[]> parts_;                        // [num_threads]
  std::vector<std::thread> workers_;
};

// Threads that this process does best with: one for each core of its affinity mask, cut to the cgroup's CPU quota
// (rounded up). At least 1. Two threads of a core share what ours are bound by, its caches, its ports and what it reads
// at a time; llama.cpp counts so too (its cpu_get_num_math).
int DefaultThreads();

// What to tell a user who asks for more threads than `best`; else "". (Embedded model, two cores, 2 4 8 threads: 688
// 366 256 tokens/s: whoever waits for another keeps its core from it.)
std::string TooManyThreads(int threads, int best = DefaultThreads());

// CPUs with one of each core in front, in the order given; the other threads of those cores behind them.
struct CoreOrder {
  std::vector<int> cpus;
  int num_cores = 0;
};
// siblings(cpu): the CPUs of its core as text, the same for each of them (Linux' thread_siblings_list); empty where
// that is not known: then the CPU is a core.
CoreOrder CoresFirst(const std::vector<int>& cpus, const std::function<std::string(int cpu)>& siblings);

// Those that the calling thread may use.
CoreOrder AllowedCores();

// The calling thread, and threads that it starts later, keep to these CPUs. Without the right to do so they stay free.
void KeepTo(const std::vector<int>& cpus);

// CPUs' worth of a cgroup v2 `cpu.max` text ("200000 100000" is 2), rounded up; 0 when there is no limit or no sense in
// it.
int CpusOfQuota(std::string_view cpu_max);

}  // namespace hydrant::base
