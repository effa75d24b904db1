// SPDX-License-Identifier: Apache-2.0
#include "eval/roofline.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "eval/random_weights.h"

namespace hydrant::eval {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLine = 64;
constexpr double kMultiplySeconds = 0.005;
constexpr int64_t kProbeBytes = int64_t{128} << 20;  // of one reading, some milliseconds even from a cache
constexpr int kMinRounds = 3;
constexpr uint64_t kPattern = 0x0101010101010101;

double Seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

// fn(thread_idx) on the first `threads` threads.
template <typename Fn>
void RunOn(base::ThreadPool& pool, int threads, const Fn& fn) {
  if (threads == 1) {
    fn(0);
    return;
  }
  pool.Run([&](int thread) {
    if (thread < threads) fn(thread);
  });
}

struct Share {
  int64_t begin, bytes;
};
Share ShareOf(int64_t bytes, int threads, int thread) {
  const int64_t lines = bytes / kLine;
  const int64_t begin = lines * thread / threads, end = lines * (thread + 1) / threads;
  return {begin * kLine, (end - begin) * kLine};
}

// Written by the threads that will read it.
base::PageBuffer FilledBuffer(base::ThreadPool& pool, int64_t bytes, base::PageSize pages) {
  base::PageBuffer buffer(static_cast<size_t>(bytes), pages);
  pool.Run([&](int thread) {
    const Share share = ShareOf(bytes, pool.num_threads(), thread);
    std::memset(buffer.data() + share.begin, 1, static_cast<size_t>(share.bytes));
  });
  return buffer;
}

std::vector<int> ThreadCounts(const base::ThreadPool& pool) {
  if (pool.num_threads() == 1) return {1};
  return {1, pool.num_threads()};
}

}  // namespace

double ReadOnce(base::ThreadPool& pool, const kernels::KernelTable& table, const uint8_t* data, int64_t bytes,
                uint64_t word, int threads, int64_t at_least) {
  HYDRANT_CHECK(bytes > 0 && bytes % kLine == 0);
  const int64_t passes = std::max<int64_t>(1, (at_least + bytes - 1) / bytes);
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);  // each on a line of its own
  const Clock::time_point start = Clock::now();
  RunOn(pool, threads, [&](int thread) {
    const Share share = ShareOf(bytes, threads, thread);
    uint64_t sum = 0;
    for (int64_t pass = 0; pass < passes; ++pass) sum += table.peak->read_lines(data + share.begin, share.bytes);
    sums[static_cast<size_t>(thread) * 8] = sum;
  });
  const double seconds = Seconds(start);
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  HYDRANT_CHECK(sum == word * static_cast<uint64_t>(bytes / 8 * passes));
  return 1e-9 * static_cast<double>(bytes * passes) / seconds;
}

double MultiplyOnce(base::ThreadPool& pool, const kernels::PeakLoop& loop, int threads) {
  std::vector<double> rates(static_cast<size_t>(threads) * 8);
  RunOn(pool, threads, [&](int thread) {
    const Clock::time_point start = Clock::now();
    int64_t macs = 0;
    int64_t rounds = 1000;
    double seconds = 0;
    while (seconds < kMultiplySeconds) {
      const kernels::PeakResult result = loop.run(rounds);
      HYDRANT_CHECK(result.sum == result.macs);
      macs += result.macs;
      seconds = Seconds(start);
      rounds = std::min(rounds * 2, kernels::kMaxPeakRounds);
    }
    rates[static_cast<size_t>(thread) * 8] = 1e-9 * static_cast<double>(macs) / seconds;
  });
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

int64_t DramBytes() {
  const auto cache = static_cast<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE));
  return std::clamp(4 * std::max<int64_t>(cache, 0) / kLine * kLine, int64_t{512} << 20, int64_t{1} << 30);
}

RooflineProbe::RooflineProbe(base::ThreadPool* pool, const kernels::KernelTable* table, int64_t bytes)
    : pool_(pool),
      table_(table),
      buffer_(FilledBuffer(*pool, std::clamp<int64_t>(bytes / kLine * kLine, 64 * kLine, DramBytes()),
                           base::PageSize::kHuge)) {}

double RooflineProbe::ReadGbPerSecond() {
  return ReadOnce(*pool_, *table_, buffer_.data(), static_cast<int64_t>(buffer_.size()), kPattern, pool_->num_threads(),
                  kProbeBytes);
}

double RooflineProbe::MultiplyGmacPerSecond(kernels::PeakType type) {
  double best = 0;
  for (int64_t l = 0; l < table_->peak->num_loops; ++l) {
    const kernels::PeakLoop& loop = table_->peak->loops[l];
    if (loop.type == type) best = std::max(best, MultiplyOnce(*pool_, loop, pool_->num_threads()));
  }
  return best;
}

Roofline MeasureRoofline(const RooflineOptions& options) {
  HYDRANT_CHECK(!options.tables.empty());
  base::ThreadPool& pool = *options.pool;
  Roofline roofline;
  roofline.buffer_bytes = options.buffer_bytes > 0 ? options.buffer_bytes : DramBytes();
  CheckMemory(2 * static_cast<uint64_t>(roofline.buffer_bytes), "the two buffers", "");
  const base::PageBuffer small = FilledBuffer(pool, roofline.buffer_bytes, base::PageSize::kSmall);
  const base::PageBuffer huge = FilledBuffer(pool, roofline.buffer_bytes, base::PageSize::kHuge);
  roofline.huge_share = huge.HugeShare();
  for (const int threads : ThreadCounts(pool)) {
    for (const base::PageSize pages : {base::PageSize::kSmall, base::PageSize::kHuge}) {
      roofline.reads.push_back({.threads = threads, .pages = pages, .gb_s = {}});
    }
    for (const kernels::KernelTable* table : options.tables) {
      for (int64_t l = 0; l < table->peak->num_loops; ++l) {
        roofline.multiplies.push_back(
            {.table = table, .loop = &table->peak->loops[l], .threads = threads, .gmac_s = {}});
      }
    }
  }
  std::vector<std::vector<double>> reads(roofline.reads.size()), multiplies(roofline.multiplies.size());
  const Clock::time_point start = Clock::now();
  for (double share = 0; roofline.rounds < kMinRounds || share < 1; ++roofline.rounds) {
    for (size_t i = 0; i < reads.size(); ++i) {
      const base::PageBuffer& buffer = roofline.reads[i].pages == base::PageSize::kHuge ? huge : small;
      reads[i].push_back(ReadOnce(pool, *options.tables.back(), buffer.data(), roofline.buffer_bytes, kPattern,
                                  roofline.reads[i].threads));
    }
    for (size_t i = 0; i < multiplies.size(); ++i) {
      multiplies[i].push_back(MultiplyOnce(pool, *roofline.multiplies[i].loop, roofline.multiplies[i].threads));
    }
    share = options.seconds > 0 ? Seconds(start) / options.seconds : 1;
    if (options.on_progress && !options.on_progress(std::min(share, 1.0))) break;
  }
  for (size_t i = 0; i < reads.size(); ++i) roofline.reads[i].gb_s = SpreadOf(std::move(reads[i]));
  for (size_t i = 0; i < multiplies.size(); ++i) roofline.multiplies[i].gmac_s = SpreadOf(std::move(multiplies[i]));
  return roofline;
}

const char* NameOf(kernels::PeakType type) {
  switch (type) {
    case kernels::PeakType::kF32: return "f32";
    case kernels::PeakType::kBF16: return "bf16";
    case kernels::PeakType::kInt8: return "int8";
  }
  return "?";
}

}  // namespace hydrant::eval
