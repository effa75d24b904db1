// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "base/check.h"
#include "hydrant/error.h"

namespace hydrant::base {
namespace {

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A pause is 10 to 50 ns on current CPUs: spin for some 50 us, the gap between two ops of a forward pass at the most.
constexpr int kSpins = 1500;
// Then give way to other processes now and then, for some 2 ms: between two regions of a generation the caller may draw
// noise or choose tokens, and waking a worker that sleeps costs 0.1 to 0.3 ms. A worker sleeps after that.
constexpr int kYields = 1000;
constexpr int kSpinsPerYield = 50;

// Inside a job the others come within microseconds, or they are not running: then the CPU may be theirs.
constexpr int kBarrierSpins = 200;

template <typename Ready>
bool SpinUntil(const Ready& ready, int spins = kSpins) {
  for (int i = 0; i < spins; ++i) {
    if (ready()) return true;
    Pause();
  }
  return false;
}

// A set of CPUs has room for 1,024; a kernel that may have more refuses a smaller one than its own.
constexpr size_t kMostSets = 64;

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  for (size_t sets = 1; sets <= kMostSets && cpus.empty(); sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    for (size_t cpu = 0; cpu < sets * CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.data())) cpus.push_back(static_cast<int>(cpu));
    }
  }
  return cpus;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void PinTo(pthread_t thread, const std::vector<int>& cpus) {
  const int largest = *std::max_element(cpus.begin(), cpus.end());
  std::vector<cpu_set_t> mask(static_cast<size_t>(largest) / CPU_SETSIZE + 1);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, mask.data());
  // Without the right to pin, the thread runs unpinned: slower at most.
  static_cast<void>(pthread_setaffinity_np(thread, bytes, mask.data()));
}

// The tightest cpu.max from this process's cgroup up to the root; 0 = none.
int CgroupCpus() {
  std::string group;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  int limit = 0;
  while (true) {
    const int cpus = CpusOfQuota(FirstLine("/sys/fs/cgroup" + group + "/cpu.max"));
    if (cpus > 0) limit = limit > 0 ? std::min(limit, cpus) : cpus;
    if (group.empty()) break;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
  return limit;
}

// While it lives, threads that are started leave signals that ask the program to end to the others. A terminal that is
// closed sends one, and then lets reads of it end: whoever reads has to hear of the signal first, and would not if a
// worker were about to take it.
class SignalsForOthers {
 public:
  SignalsForOthers() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
    pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  ~SignalsForOthers() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsForOthers(const SignalsForOthers&) = delete;
  SignalsForOthers& operator=(const SignalsForOthers&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

ThreadPool::ThreadPool(int num_threads, bool pin) : num_threads_(num_threads) {
  HYDRANT_CHECK(num_threads >= 1);
  parts_ = std::make_unique<Part[]>(static_cast<size_t>(num_threads));
  const std::vector<int> cpus = AllowedCores().cpus;
  const bool can_pin = pin && static_cast<size_t>(num_threads) <= cpus.size();
  const SignalsForOthers mask;
  try {
    workers_.reserve(static_cast<size_t>(num_threads) - 1);
    for (int i = 1; i < num_threads; ++i) {
      workers_.emplace_back([this, i] { WorkerLoop(i); });
      if (can_pin) PinTo(workers_.back().native_handle(), {cpus[static_cast<size_t>(i)]});
    }
  } catch (const std::system_error& error) {
    const size_t started = workers_.size() + 1;
    StopWorkers();
    throw UserError("only " + std::to_string(started) + " of " + std::to_string(num_threads) +
                        " threads could be started: " + error.code().message(),
                    "use fewer EngineOptions::threads, or raise the limits of this process (ulimit -u, -v; pids.max of "
                    "its cgroup)");
  } catch (...) {  // no memory: a thread that is still running must not be destroyed
    StopWorkers();
    throw;
  }
}

void ThreadPool::ThrowStopped() { throw Stopped(); }

ThreadPool::~ThreadPool() { StopWorkers(); }

void ThreadPool::StopWorkers() {
  stop_.store(true);
  job_number_.fetch_add(1);
  {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunJob(Job job) {
  HYDRANT_CHECK(!running_);
  running_ = true;
  job_ = job;
  failed_.store(false, std::memory_order_relaxed);
  num_at_barrier_.store(0, std::memory_order_relaxed);
  num_busy_.store(num_threads_ - 1, std::memory_order_relaxed);
  job_number_.fetch_add(1);
  WakeSleepers();
  Guarded(0, [&] { job_.call(job_.context, 0); });
  const auto done = [&] { return num_busy_.load(std::memory_order_acquire) == 0; };
  while (!SpinUntil(done, kBarrierSpins)) sched_yield();
  RethrowFailure();
}

void ThreadPool::RunPieces(PieceJob job, int64_t pieces) {
  HYDRANT_CHECK(!running_ && pieces < (1 << 16));
  running_ = true;
  piece_job_ = job;
  failed_.store(false, std::memory_order_relaxed);
  num_pieces_done_.store(0, std::memory_order_relaxed);
  const uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(number << 32 | static_cast<uint64_t>(pieces) << 16);
  WakeSleepers();
  TakePieces();
  const auto done = [&] { return num_pieces_done_.load(std::memory_order_acquire) == pieces; };
  while (!SpinUntil(done, kBarrierSpins)) sched_yield();
  RethrowFailure();
}

// After the sequentially consistent store of a job, and so is AwaitJob's count: it sees the job or we see a sleeper.
void ThreadPool::WakeSleepers() {
  if (num_asleep_.load() == 0) return;
  const std::lock_guard lock(mutex_);
  wake_.notify_all();
}

bool ThreadPool::HasPieces() const {
  const uint64_t ticket = ticket_.load();
  return (ticket & 0xffff) < ((ticket >> 16) & 0xffff);
}

void ThreadPool::TakePieces() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket & 0xffff) < ((ticket >> 16) & 0xffff)) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    const auto index = static_cast<int64_t>(ticket & 0xffff);
    Guarded(index, [&] { piece_job_.call(piece_job_.context, index); });
    num_pieces_done_.fetch_add(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

bool ThreadPool::Take(int part, bool front, uint32_t number, int64_t count, int64_t least, int64_t* begin,
                      int64_t* end) {
  constexpr uint64_t kField = 0xffff;
  std::atomic<uint64_t>& left = parts_[static_cast<size_t>(part)].left;
  uint64_t seen = left.load(std::memory_order_relaxed);
  while (true) {
    const bool whole = seen >> 32 != number;
    const int64_t first = whole ? count * part / num_threads_ : static_cast<int64_t>(seen >> 16 & kField);
    const int64_t last = whole ? count * (part + 1) / num_threads_ : static_cast<int64_t>(seen & kField);
    if (first == last) return false;
    const int64_t half = std::max(least, (last - first + 1) / 2);
    const int64_t taken = last - first - half < least ? last - first : half;
    *begin = front ? first : last - taken;
    *end = *begin + taken;
    const auto rest = static_cast<uint64_t>(front ? *end : first) << 16 | static_cast<uint64_t>(front ? last : *begin);
    // Relaxed: what the ranges need was written before a barrier, and the next barrier publishes what they write.
    if (left.compare_exchange_weak(seen, uint64_t{number} << 32 | rest, std::memory_order_relaxed)) return true;
  }
}

template <typename Fn>
void ThreadPool::Guarded(int64_t rank, const Fn& fn) {
  try {
    fn();
  } catch (const Cancelled&) {
    // The thread that failed has left its error.
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failed_.load(std::memory_order_relaxed) || rank < error_rank_) {
      error_ = std::current_exception();
      error_rank_ = rank;
    }
    failed_.store(true, std::memory_order_release);
  }
}

void ThreadPool::RethrowFailure() {
  running_ = false;
  if (!failed_.load(std::memory_order_relaxed)) return;
  // Some threads have made calls of Share that others have not.
  for (int i = 0; i < num_threads_; ++i) {
    parts_[static_cast<size_t>(i)].left.store(0, std::memory_order_relaxed);
    parts_[static_cast<size_t>(i)].number = 0;
  }
  std::exception_ptr error;
  std::swap(error, error_);
  std::rethrow_exception(error);
}

void ThreadPool::WorkerLoop(int thread_idx) {
  const DefaultFloatMode mode;
  uint64_t seen = 0;
  while (true) {
    AwaitJob(seen);
    if (job_number_.load(std::memory_order_acquire) == seen) {
      TakePieces();
      continue;
    }
    ++seen;
    if (stop_.load()) return;
    Guarded(0, [&] { job_.call(job_.context, thread_idx); });
    num_busy_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::AwaitJob(uint64_t seen) {
  const auto ready = [&] { return job_number_.load() != seen || HasPieces(); };
  if (SpinUntil(ready)) return;
  for (int i = 0; i < kYields; ++i) {
    sched_yield();
    if (SpinUntil(ready, kSpinsPerYield)) return;
  }
  std::unique_lock lock(mutex_);
  num_asleep_.fetch_add(1);
  wake_.wait(lock, ready);
  num_asleep_.fetch_sub(1);
}

// One counter that only grows: the last to arrive finds it complete, the others see one write. A counter and a separate
// flag would move a third cache line between the cores, 0.1 us of 0.4 on Zen 4.
void ThreadPool::Barrier() {
  LookWhetherToStop();
  if (num_threads_ == 1) return;
  const auto threads = static_cast<uint64_t>(num_threads_);
  const uint64_t arrived = num_at_barrier_.fetch_add(1, std::memory_order_acq_rel);
  const uint64_t complete = (arrived / threads + 1) * threads;
  if (arrived + 1 == complete) return;
  const auto all_here = [&] { return num_at_barrier_.load(std::memory_order_acquire) >= complete; };
  const auto ready = [&] { return all_here() || failed_.load(std::memory_order_acquire); };
  while (!SpinUntil(ready, kBarrierSpins)) sched_yield();
  if (!all_here()) throw Cancelled{};
}

int CpusOfQuota(std::string_view cpu_max) {
  const size_t space = cpu_max.find(' ');
  if (space == std::string_view::npos) return 0;
  int64_t quota = 0, period = 0;
  const std::string_view first = cpu_max.substr(0, space), second = cpu_max.substr(space + 1);
  const auto read = [](std::string_view text, int64_t& value) {
    return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{} && value > 0;
  };
  if (!read(first, quota) || !read(second, period)) return 0;
  return static_cast<int>(std::min<int64_t>(quota / period + (quota % period > 0 ? 1 : 0), 1 << 16));
}

CoreOrder CoresFirst(const std::vector<int>& cpus, const std::function<std::string(int cpu)>& siblings) {
  CoreOrder order;
  std::vector<int> others;
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string core = siblings(cpu);
    (core.empty() || cores.insert(core).second ? order.cpus : others).push_back(cpu);
  }
  order.num_cores = static_cast<int>(order.cpus.size());
  order.cpus.insert(order.cpus.end(), others.begin(), others.end());
  return order;
}

CoreOrder AllowedCores() {
  return CoresFirst(AllowedCpus(), [](int cpu) {
    return FirstLine("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  });
}

void KeepTo(const std::vector<int>& cpus) {
  if (!cpus.empty()) PinTo(pthread_self(), cpus);
}

int DefaultThreads() {
  const int allowed = std::max(1, AllowedCores().num_cores);
  const int quota = CgroupCpus();
  return quota > 0 ? std::min(allowed, quota) : allowed;
}

std::string TooManyThreads(int threads, int best) {
  if (threads <= best) return "";
  return std::to_string(threads) + " threads, but this process has cores for " + std::to_string(best) +
         ": they may wait for one another and be slower than " + std::to_string(best);
}

}  // namespace hydrant::base
