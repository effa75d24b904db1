// SPDX-License-Identifier: Apache-2.0
#include "base/page_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::base::page_buffer_test {
namespace {

TEST(PageBufferTest, IsZeroAlignedAndMoves) {
  PageBuffer buffer(5000, PageSize::kHuge);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (2U << 20), 0U);
  EXPECT_EQ(buffer.data()[4999], 0);
  buffer.data()[17] = 3;
  PageBuffer moved;
  moved = std::move(buffer);
  EXPECT_EQ(moved.data()[17], 3);
  EXPECT_EQ(moved.size(), 5000U);
}

TEST(PageBufferTest, SmallPagesAreNotHuge) {
  const PageBuffer small(size_t{8} << 20, PageSize::kSmall);
  std::memset(small.data(), 1, small.size());
  EXPECT_EQ(small.HugeShare(), 0);
  const PageBuffer huge(size_t{8} << 20, PageSize::kHuge);
  std::memset(huge.data(), 1, huge.size());
  EXPECT_LE(huge.HugeShare(), 1);
}

// Pages of the buffer that are there.
size_t PagesOf(const PageBuffer& buffer) {
  std::vector<unsigned char> there((buffer.size() + 4095) / 4096);
  EXPECT_EQ(mincore(buffer.data(), buffer.size(), there.data()), 0);
  return static_cast<size_t>(std::ranges::count_if(there, [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(PageBufferTest, PopulatedItsPagesAreThere) {
  PageBuffer buffer(100000, PageSize::kSmall, false);
  EXPECT_EQ(PagesOf(buffer), 0U);
  if (!buffer.Populate()) GTEST_SKIP() << "this system does not populate";
  EXPECT_EQ(PagesOf(buffer), 25U);
  EXPECT_EQ(buffer.data()[99999], 0);
  EXPECT_TRUE(PageBuffer().Populate());
}

TEST(PageBufferTest, MoreThanThereIsIsTheUsersMistake) {
  EXPECT_THROW(PageBuffer(size_t{1} << 60, PageSize::kHuge), UserError);
}

TEST(PageBufferTest, WithoutReservingOnlyWhatIsWrittenCounts) {
  const PageBuffer buffer(size_t{1} << 40, PageSize::kSmall, false);  // 1 TB
  buffer.data()[buffer.size() - 1] = 5;
  EXPECT_EQ(buffer.data()[buffer.size() - 1], 5);
}

}  // namespace
}  // namespace hydrant::base::page_buffer_test
