// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::base::thread_pool_test {
namespace {

TEST(ThreadPoolTest, RunCallsEveryThreadOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads, threads % 2 == 0);
    EXPECT_EQ(pool.num_threads(), threads);
    std::vector<int> calls(static_cast<size_t>(threads), 0);
    for (int job = 0; job < 300; ++job) pool.Run([&](int thread_idx) { ++calls[static_cast<size_t>(thread_idx)]; });
    for (const int count : calls) EXPECT_EQ(count, 300);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need memory of their own for a thread
// Pages of this process, of its address space.
rlim_t PagesNow() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages;
}

// Room for the stacks of some of 1,000 threads only: those that run are stopped, and the number is in the error.
TEST(ThreadPoolTest, ThreadsThatTheSystemDoesNotGiveAreAUserError) {
  const auto in_child = [] {
    const rlim_t room = PagesNow() * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
    const rlimit limit{room, room};
    setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(1000, false);
    } catch (const UserError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(7);
    }
    std::_Exit(0);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(in_child(), testing::ExitedWithCode(7), "only [0-9]+ of 1000 threads could be started");
}
#endif

TEST(ThreadPoolTest, SleepingWorkersWake) {
  ThreadPool pool(3, true);
  for (int job = 0; job < 5; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> calls{0};
    pool.Run([&](int) { ++calls; });
    EXPECT_EQ(calls.load(), 3);
  }
}

#if defined(__x86_64__)
TEST(ThreadPoolTest, EveryThreadComputesInTheDefaultFloatMode) {
  constexpr unsigned kFlags = 0x3f, kDefault = 0x1f80;
  constexpr unsigned kOther = kDefault | 0x8000 | 0x0040 | 0x4000;  // flushes, takes denormals for zeros, rounds up
  for (const int threads : {1, 3}) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(kOther);
    ThreadPool pool(threads, false);  // whose threads inherit that
    std::atomic<int> calls{0}, others{0};
    const auto look = [&] {
      ++calls;
      if ((_mm_getcsr() & ~kFlags) != kDefault) ++others;
    };
    pool.Run([&](int) { look(); });
    pool.ParallelFor(100, 1, [&](int64_t, int64_t) { look(); });
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_GT(calls.load(), threads);
    EXPECT_EQ(others.load(), 0);
    EXPECT_EQ(after & ~kFlags, kOther);
  }
}
#endif

TEST(ThreadPoolTest, ParallelForCoversTheRangeOnce) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads, false);
    for (const int64_t count : {0, 1, 2, 3, 7, 100}) {
      for (const int64_t grain : {0, 1, 2, 5, 1000}) {
        std::vector<int> hits(static_cast<size_t>(count), 0);
        std::atomic<int> pieces{0};
        pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
          ++pieces;
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), count);
        for (const int hit : hits) EXPECT_EQ(hit, 1);
        if (count > 0 && count < 2 * grain) {
          EXPECT_EQ(pieces.load(), 1);
        }
      }
    }
  }
}

TEST(ThreadPoolTest, ParallelForRethrowsTheFirstErrorInOrder) {
  ThreadPool pool(3, false);
  for (int job = 0; job < 200; ++job) {
    try {
      pool.ParallelFor(100, 1, [&](int64_t begin, int64_t) {
        if (begin == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));  // others fail before
        throw std::runtime_error(std::to_string(begin));
      });
      FAIL();
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "0");
    }
  }
}

TEST(ThreadPoolTest, BarrierSeparatesPhases) {
  ThreadPool pool(3, false);
  std::vector<int> values(3, 0);
  for (int job = 0; job < 50; ++job) {
    pool.Run([&](int thread_idx) {
      for (int phase = 0; phase < 10; ++phase) {
        values[static_cast<size_t>(thread_idx)] = 100 * job + phase;
        pool.Barrier();
        for (const int value : values) EXPECT_EQ(value, 100 * job + phase);
        pool.Barrier();
      }
    });
  }
}

TEST(ThreadPoolTest, ExceptionsReachTheCallerAndThePoolStaysUsable) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads, false);
    for (int thrower = 0; thrower < threads; ++thrower) {
      const auto job = [&](int thread_idx) {
        if (thread_idx == thrower) throw std::runtime_error("from a thread");
        pool.Barrier();  // must not wait for ever for the one that threw
      };
      EXPECT_THROW(pool.Run(job), std::runtime_error);
      std::atomic<int> calls{0};
      pool.Run([&](int) {
        ++calls;
        pool.Barrier();
      });
      EXPECT_EQ(calls.load(), threads);
    }
  }
}

TEST(ThreadPoolTest, ParallelForRethrowsAfterAllRangesHaveEnded) {
  ThreadPool pool(3, false);
  for (int job = 0; job < 50; ++job) {
    std::atomic<int> ended{0};
    EXPECT_THROW(pool.ParallelFor(9, 1,
                                  [&](int64_t begin, int64_t) {
                                    ++ended;
                                    if (begin == 4) throw std::runtime_error("from a range");
                                  }),
                 std::runtime_error);
    EXPECT_EQ(ended.load(), 9);
  }
}

TEST(ThreadPoolTest, ShareCoversTheRangeOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads, false);
    for (const int64_t count : {0, 1, 2, 3, 7, 100, 1000}) {
      for (const int64_t least : {1, 3, 1000}) {
        std::vector<int> hits(static_cast<size_t>(count), 0);
        std::atomic<int> too_short{0};
        pool.Run([&](int thread_idx) {
          for (int call = 0; call < 5; ++call) {
            pool.Share(thread_idx, count, least, [&](int64_t begin, int64_t end) {
              if (end - begin < std::min(least, count / threads)) ++too_short;
              for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
            });
            pool.Barrier();
          }
        });
        for (const int hit : hits) ASSERT_EQ(hit, 5) << threads << ' ' << count << ' ' << least;
        EXPECT_EQ(too_short.load(), 0);
      }
    }
  }
}

TEST(ThreadPoolTest, ShareLeavesNothingToAThreadThatComesLate) {
  ThreadPool pool(3, false);
  std::atomic<int> others_ready{0};
  std::vector<int> hits(40, 0);
  bool late_worked = false;
  pool.Run([&](int thread_idx) {
    while (thread_idx == 1 && others_ready.load() < 2) std::this_thread::yield();
    pool.Share(thread_idx, 40, 1, [&](int64_t begin, int64_t end) {
      if (thread_idx == 1) late_worked = true;
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
    ++others_ready;
    pool.Barrier();
  });
  EXPECT_EQ(hits, std::vector<int>(40, 1));
  EXPECT_FALSE(late_worked);
}

TEST(ThreadPoolTest, ShareWorksAfterAJobThatFailed) {
  ThreadPool pool(3, false);
  for (int thrower = 0; thrower < 3; ++thrower) {
    for (const bool before : {false, true}) {
      EXPECT_THROW(pool.Run([&](int thread_idx) {
        if (before && thread_idx == thrower) throw std::runtime_error("before its share");
        pool.Share(thread_idx, 9, 1, [&](int64_t begin, int64_t end) {
          if (begin <= 3 * thrower && 3 * thrower < end) throw std::runtime_error("from a range");
        });
        pool.Barrier();
      }),
                   std::runtime_error);
      std::vector<int> hits(9, 0);
      pool.Run([&](int thread_idx) {
        for (int call = 0; call < 2; ++call) {
          pool.Share(thread_idx, 9, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
          });
          pool.Barrier();
        }
      });
      EXPECT_EQ(hits, std::vector<int>(9, 2));
    }
  }
}

// Jobs follow one another so fast that workers are often late for one: they must not touch the next one's data.
TEST(ThreadPoolTest, LateWorkersDoNoHarm) {
  ThreadPool pool(4, false);
  for (int job = 0; job < 3000; ++job) {
    int64_t sums[9] = {};
    const int64_t count = 2 + job % 8;
    pool.ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[i] += i + job;
    });
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(sums[i], i + job);
    if (job % 100 == 0) pool.Run([&](int) { pool.Barrier(); });
  }
}

// Within a piece of the work, whichever thread finds it.
TEST(ThreadPoolTest, WhoAsksToStopStopsEveryKindOfJob) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads, false);
    std::atomic<bool> asked = false;
    pool.StopWhen(&asked);
    std::atomic<int> calls = 0;
    const auto count_and_ask = [&](int64_t, int64_t) {
      if (++calls == 2) asked = true;
    };
    const auto stops = [&](const auto& job, const std::string& what) {
      calls = 0;
      asked = false;
      EXPECT_THROW(job(), Stopped) << what << ", " << threads << " threads";
      EXPECT_LE(calls, 2 + threads) << what << ", " << threads << " threads";
      EXPECT_THROW(pool.Run([](int) {}), Stopped);
      asked = false;
      std::atomic<int64_t> sum = 0;
      pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      EXPECT_EQ(sum, 100);  // all is as before
    };
    stops([&] { pool.Run([&](int thread_idx) { pool.Share(thread_idx, 1000, 1, count_and_ask); }); }, "Share");
    stops(
        [&] {
          pool.Run([&](int thread_idx) {
            for (int i = 0; i < 1000; ++i) {
              if (thread_idx == 0) count_and_ask(0, 0);
              pool.Barrier();
            }
          });
        },
        "Barrier");
    stops(
        [&] {
          for (int i = 0; i < 100; ++i) pool.ParallelFor(threads == 1 ? 1 : 1000, 1, count_and_ask);
        },
        "ParallelFor");
  }
}

TEST(ThreadPoolTest, QuotasRoundUp) {
  EXPECT_EQ(CpusOfQuota("200000 100000"), 2);
  EXPECT_EQ(CpusOfQuota("150000 100000\n"), 2);
  EXPECT_EQ(CpusOfQuota("1000 100000"), 1);
  EXPECT_EQ(CpusOfQuota("max 100000"), 0);
  EXPECT_EQ(CpusOfQuota(""), 0);
  EXPECT_EQ(CpusOfQuota("100000"), 0);
  EXPECT_EQ(CpusOfQuota("-1 100000"), 0);
  EXPECT_EQ(CpusOfQuota("100000 0"), 0);
  EXPECT_GE(DefaultThreads(), 1);
}

TEST(ThreadPoolTest, MoreThreadsThanCoresAreWorthAWarning) {
  EXPECT_EQ(TooManyThreads(0, 1), "");
  EXPECT_EQ(TooManyThreads(4, 4), "");
  EXPECT_EQ(TooManyThreads(5, 4),
            "5 threads, but this process has cores for 4: they may wait for one another and be slower than 4");
  EXPECT_EQ(TooManyThreads(DefaultThreads()), "");
  EXPECT_NE(TooManyThreads(DefaultThreads() + 1), "");
}

TEST(ThreadPoolTest, CoresComeBeforeTheirOtherThreads) {
  const auto halves = [](int cpu) { return std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4); };
  const auto pairs = [](int cpu) { return std::to_string(cpu / 2 * 2) + "-" + std::to_string(cpu / 2 * 2 + 1); };
  const auto unknown = [](int) { return std::string(); };
  const auto expect = [](const CoreOrder& order, const std::vector<int>& cpus, int num_cores) {
    EXPECT_EQ(order.cpus, cpus);
    EXPECT_EQ(order.num_cores, num_cores);
  };
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  expect(CoresFirst(all, halves), all, 4);
  expect(CoresFirst(all, pairs), {0, 2, 4, 6, 1, 3, 5, 7}, 4);
  expect(CoresFirst(all, unknown), all, 8);
  expect(CoresFirst({1, 5, 6, 7}, halves), {1, 6, 7, 5}, 3);  // some of the machine: no first thread of two cores
  expect(CoresFirst({3}, pairs), {3}, 1);
  expect(CoresFirst({}, pairs), {}, 0);
}

}  // namespace
}  // namespace hydrant::base::thread_pool_test
