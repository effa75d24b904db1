// SPDX-License-Identifier: Apache-2.0
// The parts that kernels are built from, each alone: what a figure of `hydrant bench` can be traced to. Numbers are
// those of docs/benchmarks/micro.md.  build/release/benchmarks/micro_benchmark --benchmark_filter=05
#include "micro.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace hydrant::micro {

double SecondsPerCycle() {
#if defined(__x86_64__)
  // Multiplications, three cycles each on all Intel cores since Nehalem and all AMD Zen. Additions of a constant would
  // not do: Golden Cove and later do several of them in one cycle, before they reach a port.
  constexpr int64_t kCycles = 480000;
  double least = 1;
  for (int attempt = 0; attempt < 5; ++attempt) {  // another process may take the core
    const auto start = std::chrono::steady_clock::now();
    uint64_t x = 3;
    for (int64_t n = 0; n < kCycles / 12; ++n) {
      __asm__ volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0" : "+r"(x));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    least = std::min(least, seconds.count());
  }
  return least / static_cast<double>(kCycles);
#else
  return 1e-9;  // then "cycles" are nanoseconds
#endif
}

double Stopwatch::SecondsPerItem(const benchmark::State& state, int64_t per_iteration) const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  return seconds.count() / (static_cast<double>(per_iteration) * static_cast<double>(state.iterations()));
}

void Stopwatch::CountCycles(benchmark::State& state, int64_t per_iteration) const {
  const double seconds = SecondsPerItem(state, per_iteration);
  state.counters["cycles"] = seconds / SecondsPerCycle();
}

void Stopwatch::CountMicroseconds(benchmark::State& state, int64_t per_iteration) const {
  state.counters["us"] = 1e6 * SecondsPerItem(state, per_iteration);
}

void CountBytes(benchmark::State& state, int64_t per_iteration) {
  const double bytes = static_cast<double>(per_iteration) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(1e-9 * bytes, benchmark::Counter::kIsRate);
}

base::ThreadPool& Pool(int threads) {
  static base::ThreadPool one(1, true), two(2, true);
  return threads == 1 ? one : two;
}

bool Require(benchmark::State& state, bool present, const char* message) {
  if (!present) state.SkipWithError(message);
  return present;
}

const kernels::KernelTable* RequireTarget(benchmark::State& state, const char* target) {
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    if (std::strcmp(target, table->name) == 0) return table;
  }
  state.SkipWithError("skipped: this machine lacks the target");
  return nullptr;
}

}  // namespace hydrant::micro

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  hydrant::micro::RegisterMatmulBenchmarks();
  hydrant::micro::RegisterThreadBenchmarks();
  hydrant::micro::RegisterVectorBenchmarks();
  hydrant::micro::RegisterTileBenchmarks();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
