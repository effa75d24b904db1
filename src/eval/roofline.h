// SPDX-License-Identifier: Apache-2.0
// Measures how fast this machine reads memory and multiplies. All other times are given as parts of that speed
// (docs/benchmarks/README.md).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/page_buffer.h"
#include "base/thread_pool.h"
#include "eval/spread.h"
#include "kernels/kernels.h"

namespace hydrant::eval {

// GB/s of one reading of `bytes` at `data` by `threads` threads, a contiguous share each, again and again until
// `at_least` bytes are read. `data` is aligned to 64, `bytes` a multiple; `word` is the value of each of its 64-bit
// words. HYDRANT_CHECKs the sum.
double ReadOnce(base::ThreadPool& pool, const kernels::KernelTable& table, const uint8_t* data, int64_t bytes,
                uint64_t word, int threads, int64_t at_least = int64_t{512} << 20);

// GMAC/s of one run of a multiplying loop on `threads` threads, some five milliseconds.
double MultiplyOnce(base::ThreadPool& pool, const kernels::PeakLoop& loop, int threads);

// Measures the roofline in turn with a kernel's runs: the memory speed of shared machines changes within seconds.
class RooflineProbe {
 public:
  // Reads a buffer of its own that is as large as what the kernel reads (at most DramBytes): small weights stay in a
  // cache, and then the cache's speed is their roofline.
  RooflineProbe(base::ThreadPool* pool, const kernels::KernelTable* table, int64_t bytes);

  double ReadGbPerSecond();
  // The fastest of the table's loops for this type; 0 where it has none.
  double MultiplyGmacPerSecond(kernels::PeakType type);

 private:
  base::ThreadPool* pool_;
  const kernels::KernelTable* table_;
  base::PageBuffer buffer_;
};

struct ReadRate {
  int threads = 0;
  base::PageSize pages = base::PageSize::kSmall;
  Spread gb_s;
};
struct MultiplyRate {
  const kernels::KernelTable* table = nullptr;
  const kernels::PeakLoop* loop = nullptr;
  int threads = 0;
  Spread gmac_s;
};
struct Roofline {
  std::vector<ReadRate> reads;
  std::vector<MultiplyRate> multiplies;
  int64_t buffer_bytes = 0;
  double huge_share = 0;  // of the huge buffer that the system really put into huge pages
  int rounds = 0;
};

// More than a cache holds: four times the last-level cache, at least half a gigabyte and at most one (guests are told
// sizes of caches that they share).
int64_t DramBytes();

struct RooflineOptions {
  base::ThreadPool* pool = nullptr;
  std::vector<const kernels::KernelTable*> tables = {};  // multiply peaks of each; the last one's loop reads
  int64_t buffer_bytes = 0;                              // 0: DramBytes()
  double seconds = 5;                                    // at least three rounds
  std::function<bool(double share)> on_progress = {};    // false: stop
};
// Everything in turn, round after round, on one thread and on all.
Roofline MeasureRoofline(const RooflineOptions& options);

const char* NameOf(kernels::PeakType type);

}  // namespace hydrant::eval
