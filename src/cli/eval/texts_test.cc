// SPDX-License-Identifier: Apache-2.0
#include "cli/eval/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hydrant::cli::texts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EvalTextsTest, BlankLinesSeparateTexts) {
  EXPECT_THAT(SplitAtBlankLines("one\ntwo\n\nthree"), ElementsAre("one\ntwo", "three"));
  EXPECT_THAT(SplitAtBlankLines("\n\n one \n \t\r\n\n\ntwo\n\n"), ElementsAre(" one ", "two"));
  EXPECT_THAT(SplitAtBlankLines("one\r\ntwo"), ElementsAre("one\r\ntwo"));
  EXPECT_THAT(SplitAtBlankLines("\n \n"), IsEmpty());
  EXPECT_THAT(SplitAtBlankLines(""), IsEmpty());
}

}  // namespace
}  // namespace hydrant::cli::texts_test
