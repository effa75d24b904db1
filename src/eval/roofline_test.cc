// SPDX-License-Identifier: Apache-2.0
#include "eval/roofline.h"

#include <gtest/gtest.h>

#include <cstring>

#include "hydrant/error.h"

namespace hydrant::eval::roofline_test {
namespace {

TEST(SpreadTest, MedianIsTheMiddleOrTheMeanOfTwo) {
  const Spread odd = SpreadOf({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(SpreadOf({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(SpreadOf({}).median, 0);
}

// The sums are checked inside; a wrong one throws.
TEST(RooflineTest, ReadsSharesOfAnySizeOnAnyNumberOfThreads) {
  base::ThreadPool pool(3, false);
  for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
    base::PageBuffer buffer(1000 * 64, base::PageSize::kSmall);
    std::memset(buffer.data(), 7, buffer.size());
    for (const int threads : {1, 2, 3}) {
      for (const int64_t lines : {1, 2, 1000}) {
        EXPECT_GT(ReadOnce(pool, *table, buffer.data(), lines * 64, 0x0707070707070707, threads, 1 << 20), 0)
            << table->name;
      }
    }
    EXPECT_THROW(ReadOnce(pool, *table, buffer.data(), 640, 0x0707070707070708, 1, 0), InternalError);
  }
}

TEST(RooflineTest, MeasuresEveryLoopOfEveryTableOnOneAndAllThreads) {
  base::ThreadPool pool(2, false);
  RooflineOptions options{.pool = &pool, .tables = kernels::AvailableKernels(), .buffer_bytes = 1 << 20, .seconds = 0};
  int calls = 0;
  options.on_progress = [&calls](double share) {
    EXPECT_EQ(share, 1);
    return ++calls < 2;
  };
  const Roofline roofline = MeasureRoofline(options);
  EXPECT_EQ(calls, 2);
  ASSERT_EQ(roofline.reads.size(), 4U);
  for (const ReadRate& read : roofline.reads) {
    EXPECT_GT(read.gb_s.min, 0);
    EXPECT_LE(read.gb_s.min, read.gb_s.median);
  }
  size_t loops = 0;
  for (const kernels::KernelTable* table : options.tables) loops += static_cast<size_t>(table->peak->num_loops);
  ASSERT_EQ(roofline.multiplies.size(), 2 * loops);
  for (const MultiplyRate& rate : roofline.multiplies) EXPECT_GT(rate.gmac_s.min, 0) << rate.loop->instruction;
}

TEST(RooflineTest, ProbeKnowsTheTypesOfItsTable) {
  base::ThreadPool pool(2, false);
  RooflineProbe probe(&pool, &kernels::PortableKernels(), 1 << 20);
  EXPECT_GT(probe.ReadGbPerSecond(), 0);
  EXPECT_GT(probe.MultiplyGmacPerSecond(kernels::PeakType::kInt8), 0);
  EXPECT_EQ(probe.MultiplyGmacPerSecond(kernels::PeakType::kBF16), 0);
}

}  // namespace
}  // namespace hydrant::eval::roofline_test
