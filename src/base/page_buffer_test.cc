// SPDX-License-Identifier: Apache-2.0
#include "base/page_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "hydrant/error.h"

namespace hydrant::base {
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

TEST(PageBufferTest, MoreThanThereIsIsTheUsersMistake) {
  EXPECT_THROW(PageBuffer(size_t{1} << 60, PageSize::kHuge), UserError);
}

TEST(PageBufferTest, WithoutReservingOnlyWhatIsWrittenCounts) {
  const PageBuffer buffer(size_t{1} << 40, PageSize::kSmall, false);  // 1 TB
  buffer.data()[buffer.size() - 1] = 5;
  EXPECT_EQ(buffer.data()[buffer.size() - 1], 5);
}

}  // namespace
}  // namespace hydrant::base
