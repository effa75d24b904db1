// SPDX-License-Identifier: Apache-2.0
// 01: reads of memory. 10: barriers and wakes. 11: bytes from one core to another.
#include <sys/mman.h>

#include <chrono>
#include <thread>

#include "kernels/kernels.h"
#include "micro.h"

namespace hydrant::micro {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void Read(benchmark::State& state) {
  constexpr size_t kBytes = size_t{512} << 20;
  const auto threads = static_cast<int>(state.range(0));
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!Require(state, memory != MAP_FAILED, "no memory")) return;
  static_cast<void>(madvise(memory, kBytes, state.range(1) != 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
  auto* words = static_cast<uint64_t*>(memory);
  for (size_t i = 0; i < kBytes / 8; ++i) words[i] = i;
  const auto* bytes = static_cast<const uint8_t*>(memory);
  const kernels::KernelTable& table = kernels::KernelsFor("auto");
  const auto share = static_cast<int64_t>(kBytes) / threads;
  uint64_t sums[2] = {};
  while (state.KeepRunning()) {
    Pool(threads).Run([&](int thread) { sums[thread] = table.peak->read_lines(bytes + thread * share, share); });
  }
  const uint64_t count = kBytes / 8;
  if (sums[0] + sums[1] != count * (count - 1) / 2) state.SkipWithError("the sum of what was read is wrong");
  CountBytes(state, static_cast<int64_t>(kBytes));
  munmap(memory, kBytes);
}

void Barrier(benchmark::State& state) {
  constexpr int kBarriers = 1000;
  int64_t passed = 0;
  const Stopwatch watch;
  while (state.KeepRunning()) {
    Pool(2).Run([&](int thread) {
      for (int i = 0; i < kBarriers; ++i) {
        Pool(2).Barrier();
        if (thread == 0) ++passed;
      }
    });
  }
  if (passed != kBarriers * static_cast<int64_t>(state.iterations())) state.SkipWithError("barriers were lost");
  watch.CountMicroseconds(state, kBarriers);
}

void ForkJoin(benchmark::State& state) {
  while (state.KeepRunning()) Pool(2).Run([](int) {});
}

// A fork and join after a pause in which workers have gone to sleep, or not.
void WakeAfter(benchmark::State& state) {
  const std::chrono::microseconds pause(state.range(0));
  while (state.KeepRunning()) {
    // A short sleep would take longer than asked.
    const auto until = Clock::now() + pause;
    while (pause < std::chrono::microseconds(1000) && Clock::now() < until) {
    }
    std::this_thread::sleep_until(until);
    const auto start = Clock::now();
    Pool(2).Run([](int) {});
    state.SetIterationTime(SecondsSince(start));
  }
}

// Thread 0 writes, thread 1 reads: the time of the reading.
void HandOver(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  const bool other_core = state.range(1) != 0;
  const auto buffer = RandomLines<uint8_t>(bytes, 1);
  auto* words = reinterpret_cast<uint64_t*>(buffer.get());
  const kernels::KernelTable& table = kernels::KernelsFor("auto");
  uint64_t round = 0, sum = 0, expected = 0;
  while (state.KeepRunning()) {
    ++round;
    double seconds = 0;
    Pool(2).Run([&](int thread) {
      const int writer = other_core ? 0 : 1;
      if (thread == writer) {
        for (int64_t i = 0; i < bytes / 8; ++i) words[i] = round;
      }
      Pool(2).Barrier();
      if (thread != 1) return;
      const auto start = Clock::now();
      sum += table.peak->read_lines(buffer.get(), bytes);
      seconds = SecondsSince(start);
    });
    expected += round * static_cast<uint64_t>(bytes / 8);
    state.SetIterationTime(seconds);
  }
  if (sum != expected) state.SkipWithError("the sum of what was read is wrong");
  CountBytes(state, bytes);
}

}  // namespace

void RegisterThreadBenchmarks() {
  benchmark::RegisterBenchmark("01_read_512MB", Read)
      ->ArgsProduct({{1, 2}, {0, 1}})
      ->ArgNames({"threads", "huge_pages"})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("10_barrier_x1000", Barrier)->UseRealTime()->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("10_fork_join", ForkJoin)->UseRealTime();
  benchmark::RegisterBenchmark("10_fork_join_after_pause", WakeAfter)
      ->Arg(20)
      ->Arg(5000)
      ->ArgName("us")
      ->UseManualTime()
      ->Iterations(200);
  benchmark::RegisterBenchmark("11_read_what_was_written", HandOver)
      ->ArgsProduct({{65536}, {0, 1}})
      ->ArgNames({"bytes", "other_core"})
      ->UseManualTime();
}

}  // namespace hydrant::micro
