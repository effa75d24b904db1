// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/content_hash.h"

#include <gtest/gtest.h>

#include <string_view>

#include "tests/test_data.h"

namespace hydrant::checkpoint::content_hash_test {
namespace {

uint64_t HashOf(std::string_view text) {
  return XxHash64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// Figures of the reference tool, one for each way through the code: no byte, single bytes, a word and bytes, stripes.
TEST(ContentHashTest, GivesWhatTheReferenceGives) {
  EXPECT_EQ(HashOf(""), 0xEF46DB3751D8E999U);
  EXPECT_EQ(HashOf("a"), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(HashOf("abc"), 0x44BC2CF5AD770999U);
  EXPECT_EQ(HashOf("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1U);
}

TEST(ContentHashTest, SeveralFilesAreHashedInOrder) {
  const test::TempDir folder;
  const std::string a = folder.Write("a", "abc"), b = folder.Write("b", "a");
  EXPECT_EQ(HashOfFiles({a}), "xxh64:44bc2cf5ad770999");
  EXPECT_NE(HashOfFiles({a, b}), HashOfFiles({b, a}));
}

}  // namespace
}  // namespace hydrant::checkpoint::content_hash_test
