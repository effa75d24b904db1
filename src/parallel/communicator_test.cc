// SPDX-License-Identifier: Apache-2.0
#include "parallel/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <initializer_list>
#include <mutex>
#include <thread>
#include <vector>

namespace hydrant::parallel::communicator_test {
namespace {

constexpr int kSizes[] = {1, 2, 3, 5};

// Sizes of numbers whose sum depends on the order of additions.
template <typename T>
T NumberOf(int rank, size_t i) {
  const auto mixed = static_cast<int>((i * 7919 + static_cast<size_t>(rank) * 104729) % 2001) - 1000;
  return static_cast<T>(mixed) * static_cast<T>(std::pow(10, (static_cast<int>(i) + rank * 3) % 9 - 4)) / T{3};
}

template <typename T>
std::vector<T> NumbersOf(int rank, size_t count) {
  std::vector<T> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = NumberOf<T>(rank, i);
  return numbers;
}

// The order that the header describes, for each number of ranks by itself.
template <typename T>
T InOrder(const std::vector<T>& x) {
  switch (x.size()) {
    case 1: return x[0];
    case 2: return x[0] + x[1];
    case 3: return (x[0] + x[1]) + x[2];
    default: return ((x[0] + x[1]) + (x[2] + x[3])) + x[4];
  }
}

template <typename T>
void CheckSums(Communicator& ranks, size_t count) {
  std::vector<T> numbers = NumbersOf<T>(ranks.rank(), count);
  ranks.TreeSum(std::span(numbers));
  for (size_t i = 0; i < count; ++i) {
    std::vector<T> terms;
    for (int r = 0; r < ranks.size(); ++r) terms.push_back(NumberOf<T>(r, i));
    ASSERT_EQ(numbers[i], InOrder(terms)) << i << " of " << count << ", rank " << ranks.rank();
  }
}

TEST(Communicator, SumsInTheOrderOfTheTree) {
  for (const int size : kSizes) {
    RunThreads(size, {}, [](Communicator& ranks) {
      for (const size_t count : std::initializer_list<size_t>{0, 1, 2, 3, 4, 5, 6, 7, 16, 1000, 1001}) {
        CheckSums<float>(ranks, count);
        CheckSums<double>(ranks, count);
      }
    });
  }
}

TEST(Communicator, SumsOfSeveralPieces) {
  constexpr size_t kTwoPiecesAndSome = 3'300'001;
  RunThreads(3, {}, [](Communicator& ranks) {
    std::vector<float> numbers(kTwoPiecesAndSome);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 1000) + 1;
    ranks.TreeSum(std::span(numbers));
    size_t num_right = 0;
    for (size_t i = 0; i < numbers.size(); ++i) num_right += numbers[i] == 3 * (static_cast<float>(i % 1000) + 1);
    EXPECT_EQ(num_right, numbers.size());
  });
}

TEST(Communicator, BroadcastGatherAndMaximum) {
  for (const int size : kSizes) {
    RunThreads(size, {}, [size](Communicator& ranks) {
      EXPECT_EQ(ranks.size(), size);
      for (int root = 0; root < size; ++root) {
        std::vector<int32_t> numbers(5, ranks.rank());
        ranks.Broadcast(BytesOf(std::span(numbers)), root);
        EXPECT_EQ(numbers, std::vector<int32_t>(5, root));
      }
      const std::vector<int32_t> own = {ranks.rank(), -ranks.rank()};
      std::vector<int32_t> all(2 * static_cast<size_t>(size)), expected;
      ranks.AllGather(std::as_bytes(std::span(own)), BytesOf(std::span(all)));
      for (int r = 0; r < size; ++r) expected.insert(expected.end(), {r, -r});
      EXPECT_EQ(all, expected);
      EXPECT_EQ(ranks.MaxReduce(-5 - ranks.rank()), -5);
      EXPECT_EQ(ranks.MaxReduce(ranks.rank()), size - 1);
      ranks.Barrier();
    });
  }
}

TEST(Communicator, SingleIsARankAlone) {
  const std::unique_ptr<Communicator> ranks = MakeSingle();
  CheckSums<float>(*ranks, 10);
  EXPECT_EQ(ranks->MaxReduce(-3), -3);
  ranks->Barrier();
  EXPECT_THROW(ranks->Abort("the end"), RankError);
}

TEST(Communicator, BitsDoNotDependOnWhoComesFirst) {
  std::vector<std::vector<float>> sums;
  std::mutex mutex;
  for (int last = 0; last < 5; ++last) {
    RunThreads(5, {}, [&](Communicator& ranks) {
      std::vector<float> numbers = NumbersOf<float>(ranks.rank(), 997);
      for (int round = 0; round < 3; ++round) {
        if ((ranks.rank() + round) % 5 == last) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ranks.TreeSum(std::span(numbers));
      }
      const std::lock_guard lock(mutex);
      sums.push_back(numbers);
    });
  }
  ASSERT_EQ(sums.size(), 25U);
  for (const auto& sum : sums) EXPECT_EQ(sum, sums.front());
}

TEST(Communicator, BarrierHoldsUntilAllHaveCome) {
  std::atomic<int> num_here = 0;
  RunThreads(3, {}, [&](Communicator& ranks) {
    for (int round = 1; round <= 100; ++round) {
      ++num_here;
      ranks.Barrier();
      EXPECT_GE(num_here, 3 * round);
      ranks.Barrier();
    }
  });
}

TEST(Communicator, ARankThatThrowsEndsTheOthers) {
  std::atomic<int> num_ended = 0;
  const auto body = [&](Communicator& ranks) {
    ranks.Barrier();
    if (ranks.rank() == 1) throw UserError("no more paper");
    try {
      ranks.Barrier();
      ADD_FAILURE() << "a barrier without rank 1";
    } catch (const RankError& e) {
      EXPECT_STREQ(e.what(), "rank 1 has failed: no more paper");
      ++num_ended;
      throw;
    }
  };
  try {
    RunThreads(3, {}, body);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "no more paper");
  }
  EXPECT_EQ(num_ended, 2);
}

TEST(Communicator, ARankThatHasEndedIsNotWaitedFor) {
  const auto body = [](Communicator& ranks) {
    if (ranks.rank() != 0) ranks.Barrier();
  };
  EXPECT_THROW(RunThreads(3, {}, body), RankError);
}

TEST(Communicator, AbortEndsAll) {
  std::string heard;
  const CommunicatorOptions options{.on_abort = [&](const std::string& text) { heard = text; }};
  const auto body = [](Communicator& ranks) {
    if (ranks.rank() == 2) ranks.Abort("sums differ");
    ranks.Barrier();
  };
  EXPECT_THROW(RunThreads(3, options, body), RankError);
  EXPECT_EQ(heard, "sums differ");
}

TEST(Communicator, TheWatchdogNamesRankStepAndCollective) {
  std::mutex mutex;
  std::string heard;
  const CommunicatorOptions options{.limit = std::chrono::milliseconds(100), .on_abort = [&](const std::string& text) {
                                      const std::lock_guard lock(mutex);
                                      heard = text;
                                    }};
  std::atomic<bool> may_end = false;
  const auto body = [&](Communicator& ranks) {
    ranks.set_step(12);
    if (ranks.rank() == 1) {
      while (!may_end) std::this_thread::yield();
      return;
    }
    std::vector<float> numbers(3);
    try {
      ranks.TreeSum(std::span(numbers));
    } catch (...) {
      may_end = true;
      throw;
    }
  };
  EXPECT_THROW(RunThreads(2, options, body), RankError);
  EXPECT_EQ(heard, "rank 0 of 2 has waited 0.1 s in TreeSum at step 12 for ranks that do not come");
}

TEST(Communicator, DifferentCollectivesAreAMistakeOfOurs) {
  const auto body = [](Communicator& ranks) {
    const int64_t own = 1;
    std::vector<int64_t> all(2);
    if (ranks.rank() == 0) {
      ranks.MaxReduce(own);
    } else {
      ranks.AllGather(std::as_bytes(std::span(&own, 1)), BytesOf(std::span(all)));
    }
  };
  EXPECT_THROW(RunThreads(2, {}, body), InternalError);
}

}  // namespace
}  // namespace hydrant::parallel::communicator_test
