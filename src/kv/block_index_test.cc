// SPDX-License-Identifier: Apache-2.0
#include "kv/block_index.h"

#include <gtest/gtest.h>

#include <vector>

namespace hydrant::kv::block_index_test {
namespace {

std::vector<int32_t> Tokens(int32_t first) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kernels::kBlockPositions; ++i) tokens.push_back(first + i);
  return tokens;
}

BlockIndex::Tokens View(const std::vector<int32_t>& tokens) { return BlockIndex::Tokens(tokens); }

TEST(BlockIndexTest, TheSameTokensAfterOtherTextAreAnotherContent) {
  BlockIndex index;
  const std::vector<int32_t> a = Tokens(0), b = Tokens(100);
  const BlockIndex::Found first_a = index.Add(3, BlockIndex::kNothing, "", View(a));
  const BlockIndex::Found first_b = index.Add(4, BlockIndex::kNothing, "", View(b));
  const BlockIndex::Found b_after_a = index.Add(5, first_a.content, "", View(b));
  EXPECT_EQ(index.Find(BlockIndex::kNothing, "", View(b)).block, 4);
  EXPECT_EQ(index.Find(first_a.content, "", View(b)).block, 5);
  EXPECT_EQ(index.Find(first_b.content, "", View(b)).block, -1);
  EXPECT_NE(first_b.content, b_after_a.content);
}

TEST(BlockIndexTest, TheFirstBlockSaysWhoseItIs) {
  BlockIndex index;
  const std::vector<int32_t> a = Tokens(0);
  const BlockIndex::Found mine = index.Add(1, BlockIndex::kNothing, "me", View(a));
  EXPECT_EQ(index.Find(BlockIndex::kNothing, "you", View(a)).block, -1);
  EXPECT_NE(index.Add(2, BlockIndex::kNothing, "you", View(a)).content, mine.content);
}

TEST(BlockIndexTest, WhatIsThereStaysAndWhatIsRemovedNeverComesBack) {
  BlockIndex index;
  const std::vector<int32_t> a = Tokens(0), b = Tokens(1);
  const BlockIndex::Found first = index.Add(1, BlockIndex::kNothing, "", View(a));
  EXPECT_EQ(index.Add(2, BlockIndex::kNothing, "", View(a)).block, 1);
  EXPECT_FALSE(index.Holds(2));
  index.Add(7, first.content, "", View(b));
  index.Remove(1);
  index.Remove(2);  // is not there
  EXPECT_EQ(index.Find(BlockIndex::kNothing, "", View(a)).block, -1);
  const BlockIndex::Found anew = index.Add(2, BlockIndex::kNothing, "", View(a));
  EXPECT_NE(anew.content, first.content);
  EXPECT_EQ(index.Find(anew.content, "", View(b)).block, -1);  // came after what was removed
  EXPECT_EQ(index.size(), 2U);
}

}  // namespace
}  // namespace hydrant::kv::block_index_test
