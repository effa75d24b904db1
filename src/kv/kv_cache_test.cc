// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::kv {
namespace {

KvShape SmallShape(DType dtype = DType::kF32) {
  return {.num_layers = 2, .num_kv_heads = 3, .head_dim = 4, .dtype = dtype};
}

// One row of keys or values per layer, half and head, all different.
float ElementOf(float value, int64_t layer, bool is_value, int64_t head, int64_t d) {
  return value + static_cast<float>(layer * 64 + (is_value ? 32 : 0) + head * 8 + d) / 128;
}

uint8_t* At(const BlockPool& pool, const BlockTable& table, int64_t layer, bool is_value, int64_t head, int32_t slot,
            int64_t d) {
  const kernels::KvLayer view = pool.layer(layer);
  return is_value ? view.value(table.blocks(), head, slot, d) : view.key(table.blocks(), head, slot, d);
}

template <typename Fn>
void ForElements(const Fn& fn) {
  for (int64_t l = 0; l < 2; ++l) {
    for (const bool is_value : {false, true}) {
      for (int64_t h = 0; h < 3; ++h) {
        for (int64_t d = 0; d < 4; ++d) fn(l, is_value, h, d);
      }
    }
  }
}

// 16-bit caches get the upper half of the f32: enough to tell values apart.
size_t Stored(DType dtype, float value, uint8_t* to) {
  const size_t skip = 4 - SizeOf(dtype);
  std::memcpy(to, reinterpret_cast<const uint8_t*>(&value) + skip, SizeOf(dtype));
  return SizeOf(dtype);
}

void Mark(const BlockPool& pool, const BlockTable& table, int32_t slot, float value) {
  ForElements([&](int64_t l, bool is_value, int64_t h, int64_t d) {
    Stored(pool.shape().dtype, ElementOf(value, l, is_value, h, d), At(pool, table, l, is_value, h, slot, d));
  });
}

void ExpectMark(const BlockPool& pool, const BlockTable& table, int32_t slot, float value) {
  ForElements([&](int64_t l, bool is_value, int64_t h, int64_t d) {
    uint8_t expected[4];
    const size_t bytes = Stored(pool.shape().dtype, ElementOf(value, l, is_value, h, d), expected);
    ASSERT_EQ(std::memcmp(At(pool, table, l, is_value, h, slot, d), expected, bytes), 0) << "slot " << slot;
  });
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

// Extents that a config may claim: the product is refused, not taken modulo 2^64. The last one's would be 0.
TEST(BlockPoolTest, APoolOfMoreBytesThan64BitsCountIsRefused) {
  const KvShape shape{.num_layers = 4096, .num_kv_heads = 1 << 20, .head_dim = 16, .dtype = DType::kF32};
  for (const int32_t blocks : {(1 << 20) + 1, 1 << 24, 1 << 20}) EXPECT_THROW(BlockPool(shape, blocks), UserError);
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
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::mt19937 random(7);
    BlockPool pool(SmallShape(dtype), 16);
    BlockTable table(&pool);
    std::vector<float> expected;
    float next = 1;
    while (table.length() < 300) {
      const int32_t num_nodes = 1 + static_cast<int32_t>(random() % 70);
      ASSERT_TRUE(table.Reserve(table.length() + num_nodes));
      const float first = next;
      for (int32_t node = 0; node < num_nodes; ++node) {
        Mark(pool, table, table.length() + node, next);
        next *= 1.0078125F;  // one step of bf16
      }
      std::vector<int32_t> path{0};
      for (int32_t node = 1; node < num_nodes; ++node) {
        if (random() % 5 == 0) path.push_back(node);
      }
      float at = first;
      for (int32_t node = 0; node < num_nodes; ++node) {
        if (std::find(path.begin(), path.end(), node) != path.end()) expected.push_back(at);
        at *= 1.0078125F;
      }
      table.CommitPath(path);
      ASSERT_EQ(table.length(), static_cast<int32_t>(expected.size()));
    }
    for (int32_t slot = 0; slot < table.length(); ++slot) {
      ExpectMark(pool, table, slot, expected[static_cast<size_t>(slot)]);
    }
  }
}

}  // namespace
}  // namespace hydrant::kv
