// SPDX-License-Identifier: Apache-2.0
// What the files of micro_benchmark share. docs/benchmarks/micro.md has the figures to expect.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace hydrant::micro {

// Of the core clock at this moment, by a chain of multiplications of three cycles each.
double SecondsPerCycle();

// Runs from its construction, just before a benchmark's loop, to Count*, just behind it.
class Stopwatch {
 public:
  // Counter "cycles": core cycles for each of `per_iteration` items.
  void CountCycles(benchmark::State& state, int64_t per_iteration) const;
  // Counter "us": microseconds for each.
  void CountMicroseconds(benchmark::State& state, int64_t per_iteration) const;

 private:
  double SecondsPerItem(const benchmark::State& state, int64_t per_iteration) const;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};
// Counter "GB/s".
void CountBytes(benchmark::State& state, int64_t per_iteration);

base::ThreadPool& Pool(int threads);

// False, and the benchmark ends with a message, where the machine cannot run it.
bool Require(benchmark::State& state, bool present, const char* message);

// The kernels of a target; null, and the benchmark ends with a message, where the machine lacks it.
const kernels::KernelTable* RequireTarget(benchmark::State& state, const char* target);

// `count` values, aligned to 4 KB.
template <typename T>
class Lines {
 public:
  explicit Lines(int64_t count = 0)
      : bytes_((static_cast<size_t>(count) * sizeof(T) + 4095) / 4096 * 4096),
        values_(static_cast<T*>(std::aligned_alloc(4096, bytes_))) {}

  T* get() const { return values_.get(); }
  T& operator[](int64_t i) const { return values_.get()[i]; }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  size_t bytes_;
  std::unique_ptr<T, Free> values_;
};

template <typename T>
Lines<T> RandomLines(int64_t count, uint32_t seed) {
  Lines<T> lines(count);
  std::mt19937_64 random(seed);
  auto* words = reinterpret_cast<uint64_t*>(lines.get());
  for (size_t i = 0; i < lines.bytes() / 8; ++i) words[i] = random();
  return lines;
}

void RegisterMatmulBenchmarks();
void RegisterThreadBenchmarks();
void RegisterVectorBenchmarks();
void RegisterTileBenchmarks();

}  // namespace hydrant::micro
