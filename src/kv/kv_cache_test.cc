// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace hydrant::kv {
namespace {

KvShape SmallShape() { return {.num_layers = 2, .num_kv_heads = 3, .head_dim = 4, .dtype = DType::kF32}; }

// The address of one element, computed independently of the class.
float* Element(const BlockPool& pool, const BlockTable& table, int64_t layer, int64_t kv, int64_t head, int32_t slot) {
  const kernels::KvLayer view = pool.layer(layer);
  const int64_t block = table.blocks()[slot / 32];
  const int64_t row = ((block * 2 + kv) * view.num_kv_heads + head) * 32 + slot % 32;
  return reinterpret_cast<float*>(view.data) + row * view.head_dim;
}

void Mark(const BlockPool& pool, const BlockTable& table, int32_t slot, float value) {
  for (int64_t l = 0; l < 2; ++l) {
    for (int64_t kv = 0; kv < 2; ++kv) {
      for (int64_t h = 0; h < 3; ++h) {
        for (int64_t d = 0; d < 4; ++d) {
          Element(pool, table, l, kv, h, slot)[d] = value + static_cast<float>(l * 1000 + kv * 100 + h * 10 + d) / 4096;
        }
      }
    }
  }
}

void ExpectMark(const BlockPool& pool, const BlockTable& table, int32_t slot, float value) {
  for (int64_t l = 0; l < 2; ++l) {
    for (int64_t kv = 0; kv < 2; ++kv) {
      for (int64_t h = 0; h < 3; ++h) {
        for (int64_t d = 0; d < 4; ++d) {
          ASSERT_EQ(Element(pool, table, l, kv, h, slot)[d],
                    value + static_cast<float>(l * 1000 + kv * 100 + h * 10 + d) / 4096);
        }
      }
    }
  }
}

TEST(BlockPoolTest, AFullPoolSaysSoAndFreedBlocksComeBack) {
  BlockPool pool(SmallShape(), 3);
  BlockTable table(&pool);
  EXPECT_TRUE(table.Reserve(96));
  EXPECT_FALSE(table.Reserve(97));
  EXPECT_EQ(pool.num_free(), 0);
  table.Append(40);
  table.Truncate(32);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(table.num_blocks(), 1);
}

TEST(BlockPoolTest, TablesGiveTheirBlocksBack) {
  BlockPool pool(SmallShape(), 3);
  {
    BlockTable table(&pool);
    EXPECT_TRUE(table.Reserve(65));
  }
  EXPECT_EQ(pool.num_free(), 3);
}

// Random paths over random trees, against a plain list of what should be at each position.
TEST(BlockTableTest, CommitPathKeepsExactlyThePath) {
  std::mt19937 random(7);
  BlockPool pool(SmallShape(), 16);
  BlockTable table(&pool);
  std::vector<float> expected;
  float next = 1;
  while (table.length() < 300) {
    const int32_t num_nodes = 1 + static_cast<int32_t>(random() % 70);
    ASSERT_TRUE(table.Reserve(table.length() + num_nodes));
    const float first = next;
    for (int32_t node = 0; node < num_nodes; ++node) Mark(pool, table, table.length() + node, next++);
    std::vector<int32_t> path{0};
    for (int32_t node = 1; node < num_nodes; ++node) {
      if (random() % 5 == 0) path.push_back(node);
    }
    for (const int32_t node : path) expected.push_back(first + static_cast<float>(node));
    table.CommitPath(path);
    ASSERT_EQ(table.length(), static_cast<int32_t>(expected.size()));
  }
  for (int32_t slot = 0; slot < table.length(); ++slot) {
    ExpectMark(pool, table, slot, expected[static_cast<size_t>(slot)]);
  }
}

}  // namespace
}  // namespace hydrant::kv
