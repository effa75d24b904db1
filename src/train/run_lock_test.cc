// SPDX-License-Identifier: Apache-2.0
#include "train/run_lock.h"

#include <gtest/gtest.h>

#include <memory>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::train::run_lock_test {
namespace {

TEST(RunLock, OneAtATime) {
  const test::TempDir dir;
  auto first = std::make_unique<RunLock>(dir.path());
  EXPECT_THROW(RunLock(dir.path()), FileError);
  first.reset();
  const RunLock second(dir.path());
  EXPECT_THROW(RunLock(dir.path() + "/nowhere"), FileError);
}

}  // namespace
}  // namespace hydrant::train::run_lock_test
