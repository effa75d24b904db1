// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "hydrant/error.h"

namespace hydrant::kv::kv_cache_test {
namespace {

constexpr LayerShape kSmallLayer{.num_kv_heads = 3, .head_dim = 4};

KvShape SmallShape(DType dtype = DType::kF32) { return {.layers = {kSmallLayer, kSmallLayer}, .dtype = dtype}; }

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
  const KvShape shape{.layers = std::vector<LayerShape>(4096, {.num_kv_heads = 1 << 20, .head_dim = 16})};
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
      table.CommitPath(path, {.first = 0, .count = 2});
      ASSERT_EQ(table.length(), static_cast<int32_t>(expected.size()));
    }
    for (int32_t slot = 0; slot < table.length(); ++slot) {
      ExpectMark(pool, table, slot, expected[static_cast<size_t>(slot)]);
    }
  }
}

// Layers of a drafter may have other heads, and what is committed of the base's leaves them alone.
TEST(BlockTableTest, ADraftersLayersAreItsOwn) {
  BlockPool pool({.layers = {kSmallLayer, {.num_kv_heads = 1, .head_dim = 6}, kSmallLayer}}, 40);
  BlockTable other(&pool), table(&pool);
  ASSERT_TRUE(other.Reserve(33 * 32));  // the table begins in a segment of its own
  ASSERT_TRUE(table.Reserve(8));
  for (int64_t l = 0; l < pool.num_layers(); ++l) {
    const kernels::KvLayer layer = pool.layer(l);
    for (int32_t slot = 0; slot < 8; ++slot) {
      *layer.key(table.blocks(), 0, slot, 0) = static_cast<uint8_t>(10 * l + slot);
    }
  }
  const std::vector<int32_t> path{0, 3, 5};
  table.CommitPath(path, {.first = 0, .count = 1});
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(*pool.layer(0).key(table.blocks(), 0, i, 0), path[static_cast<size_t>(i)]);
    for (const int64_t l : {1, 2}) EXPECT_EQ(*pool.layer(l).key(table.blocks(), 0, i, 0), 10 * l + i);
  }
}

// All elements of all blocks of all layers are different bytes.
TEST(BlockPoolTest, BlocksDoNotOverlap) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int32_t blocks : {1, 5, 16, 17, 50}) {
      BlockPool pool({.layers = {kSmallLayer, {.num_kv_heads = 1, .head_dim = 6}, {.num_kv_heads = 2, .head_dim = 6}},
                      .dtype = dtype},
                     blocks);
      BlockTable table(&pool);
      ASSERT_TRUE(table.Reserve(32 * blocks));
      std::set<const uint8_t*> seen;
      size_t count = 0;
      for (int64_t l = 0; l < pool.num_layers(); ++l) {
        const kernels::KvLayer layer = pool.layer(l);
        for (int64_t h = 0; h < layer.num_kv_heads; ++h) {
          for (int32_t slot = 0; slot < 32 * blocks; ++slot) {
            for (int64_t d = 0; d < layer.head_dim; ++d, count += 2) {
              seen.insert(layer.key(table.blocks(), h, slot, d));
              seen.insert(layer.value(table.blocks(), h, slot, d));
            }
          }
        }
      }
      EXPECT_EQ(seen.size(), count);
    }
  }
}

std::vector<int32_t> Text(int32_t length, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A text that is computed, marked by its tokens, and published.
void Compute(BlockPool& pool, BlockTable& table, const std::vector<int32_t>& text, std::string_view scope = "a") {
  const int32_t first = table.length();
  ASSERT_TRUE(table.Reserve(static_cast<int32_t>(text.size())));
  for (int32_t slot = first; slot < static_cast<int32_t>(text.size()); ++slot) {
    Mark(pool, table, slot, static_cast<float>(text[static_cast<size_t>(slot)] + 1));
  }
  table.Append(static_cast<int32_t>(text.size()) - first);
  table.Publish(scope, text);
}

void ExpectText(const BlockPool& pool, const BlockTable& table, const std::vector<int32_t>& text) {
  for (int32_t slot = 0; slot < table.length(); ++slot) {
    ExpectMark(pool, table, slot, static_cast<float>(text[static_cast<size_t>(slot)] + 1));
  }
}

TEST(PrefixTest, ATextsFullBlocksAreFoundByOthersOfItsScope) {
  BlockPool pool(SmallShape(), 20);
  const std::vector<int32_t> text = Text(100);
  {
    BlockTable table(&pool);
    Compute(pool, table, text);
    BlockTable now(&pool);
    EXPECT_EQ(now.Adopt("a", text, 99), 96);  // while its first user goes on
    EXPECT_EQ(pool.num_free(), 16);
  }
  EXPECT_EQ(pool.num_free(), 20);
  BlockTable again(&pool), stranger(&pool), other_text(&pool), longer(&pool);
  EXPECT_EQ(again.Adopt("a", text, 99), 96);
  ExpectText(pool, again, text);
  EXPECT_EQ(stranger.Adopt("b", text, 99), 0);
  std::vector<int32_t> changed = text;
  changed[40] = -1;
  EXPECT_EQ(other_text.Adopt("a", changed, 99), 32);
  EXPECT_EQ(longer.Adopt("a", Text(200), 199), 96);
  EXPECT_EQ(pool.num_free(), 17);
}

// Where the drafter's rows read the token behind them, the last row of a block is only right for texts that go on
// alike.
TEST(PrefixTest, TextsThatPartBehindABlockDoNotShareItWhereRowsReadTheNextToken) {
  KvShape shape = SmallShape();
  shape.reads_next_token = true;
  BlockPool pool(shape, 20);
  const std::vector<int32_t> text = Text(64);  // what is behind the second block is not known yet
  std::vector<int32_t> longer = Text(64), other = Text(64);
  longer.push_back(7);
  other.push_back(8);
  BlockTable first(&pool);
  Compute(pool, first, text);
  EXPECT_EQ(pool.index().size(), 1U);
  first.Publish("a", longer);
  EXPECT_EQ(pool.index().size(), 2U);
  EXPECT_EQ(pool.NumKnown("a", longer), 2);
  EXPECT_EQ(pool.NumKnown("a", other), 1);
  BlockTable same(&pool), parting(&pool), unknown(&pool);
  EXPECT_EQ(same.Adopt("a", longer, 64), 64);
  EXPECT_EQ(parting.Adopt("a", other, 64), 32);
  EXPECT_EQ(unknown.Adopt("a", text, 63), 32);
}

// A hit that ends within a block: whoever writes behind it takes a copy, and the others keep what they have.
TEST(PrefixTest, ASharedBlockIsCopiedWhenItIsWritten) {
  BlockPool pool(SmallShape(), 20);
  const std::vector<int32_t> text = Text(64);
  BlockTable first(&pool);
  Compute(pool, first, text);
  BlockTable second(&pool);
  EXPECT_EQ(second.Adopt("a", text, 50), 50);
  EXPECT_EQ(second.blocks()[1], first.blocks()[1]);
  EXPECT_EQ(second.num_copies(), 1);
  EXPECT_EQ(second.num_own(), 0);
  std::vector<int32_t> other = Text(50);
  other.resize(70, 7);
  Compute(pool, second, other);
  EXPECT_NE(second.blocks()[1], first.blocks()[1]);
  EXPECT_EQ(second.num_copies(), 0);
  EXPECT_EQ(second.num_own(), 2);
  ExpectText(pool, first, text);
  ExpectText(pool, second, other);
  // Both contents are known now.
  BlockTable third(&pool), fourth(&pool);
  EXPECT_EQ(third.Adopt("a", text, 64), 64);
  EXPECT_EQ(fourth.Adopt("a", other, 64), 64);
  ExpectText(pool, third, text);
  ExpectText(pool, fourth, other);
}

// The only user of a known block writes it in place, and it is known no more.
TEST(PrefixTest, WhatIsTakenBackIsForgotten) {
  BlockPool pool(SmallShape(), 4);
  const std::vector<int32_t> text = Text(64);
  BlockTable table(&pool);
  Compute(pool, table, text);
  table.Truncate(40);
  std::vector<int32_t> other = Text(40);
  other.resize(64, 9);
  Compute(pool, table, other);
  BlockTable old(&pool), current(&pool);
  EXPECT_EQ(old.Adopt("a", text, 64), 32);
  EXPECT_EQ(current.Adopt("a", other, 64), 64);
  ExpectText(pool, current, other);
}

TEST(PrefixTest, WhatIsForgottenIsFreeAtOnce) {
  BlockPool pool(SmallShape(), 4);
  BlockTable table(&pool);
  Compute(pool, table, Text(64));
  EXPECT_EQ(pool.index().size(), 2U);
  table.Forget();
  EXPECT_EQ(pool.index().size(), 0U);
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(PrefixTest, AFullPoolGivesUpWhatWasUsedLongestAgo) {
  BlockPool pool(SmallShape(), 6);
  for (int32_t t = 0; t < 3; ++t) {
    BlockTable table(&pool);
    Compute(pool, table, Text(64, 1000 * t));
  }
  {
    BlockTable touched(&pool);
    EXPECT_EQ(touched.Adopt("a", Text(64), 64), 64);
  }
  BlockTable large(&pool);
  ASSERT_TRUE(large.Reserve(3 * 32));
  // The second text was the oldest, then the end of the third.
  BlockTable first(&pool), second(&pool), third(&pool);
  EXPECT_EQ(first.Adopt("a", Text(64), 64), 64);
  EXPECT_EQ(second.Adopt("a", Text(64, 1000), 64), 0);
  EXPECT_EQ(third.Adopt("a", Text(64, 2000), 64), 32);
  EXPECT_FALSE(large.Reserve(6 * 32));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PrefixTest, TheDraftersPartIsKnownUpToWhereItIsWhole) {
  BlockPool pool(SmallShape(), 20);
  const std::vector<int32_t> text = Text(128);
  BlockTable table(&pool);
  Compute(pool, table, text);
  table.AppendDrafted(70);
  BlockTable partly(&pool);
  EXPECT_EQ(partly.Adopt("a", text, 127), 127);
  EXPECT_EQ(partly.drafted_length(), 64);
  table.AppendDrafted(58);  // also of blocks that others share by now
  BlockTable whole(&pool);
  EXPECT_EQ(whole.Adopt("a", text, 127), 127);
  EXPECT_EQ(whole.drafted_length(), 127);
}

// Sequences come, share, grow, are cut and go at random; each always reads back its own text, and no block is lost.
TEST(PrefixTest, RandomUseNeverMixesTexts) {
  struct Sequence {
    std::vector<int32_t> text;
    std::unique_ptr<BlockTable> table;
  };
  std::mt19937 random(11);
  const KvShape shape = SmallShape();
  BlockPool pool(shape, 10);
  std::vector<Sequence> running;
  const auto grow = [&](std::vector<int32_t>& text, size_t length) {
    while (text.size() < length) text.push_back(static_cast<int32_t>(random() % 2));
  };
  int64_t adopted = 0, full = 0;
  for (int round = 0; round < 3000; ++round) {
    if (running.size() < 5 && random() % 3 == 0) {
      Sequence sequence{.text = {}, .table = std::make_unique<BlockTable>(&pool)};
      if (!running.empty()) sequence.text = running[random() % running.size()].text;
      sequence.text.resize(random() % (sequence.text.size() + 1));
      grow(sequence.text, sequence.text.size() + 1 + random() % 40);
      adopted += sequence.table->Adopt("a", sequence.text, static_cast<int32_t>(sequence.text.size()) - 1);
      running.push_back(std::move(sequence));
    }
    if (running.empty()) continue;
    Sequence& sequence = running[random() % running.size()];
    const auto length = static_cast<size_t>(sequence.table->length());
    switch (random() % 8) {
      case 0:
        sequence.table->Truncate(static_cast<int32_t>(random() % (length + 1)));
        sequence.text.resize(static_cast<size_t>(sequence.table->length()));
        grow(sequence.text, sequence.text.size() + 1);
        break;
      case 1:
        std::swap(sequence, running.back());
        running.pop_back();
        break;
      default:
        grow(sequence.text, length + 1 + random() % 20);
        if (!sequence.table->Reserve(static_cast<int32_t>(sequence.text.size()))) {
          ++full;
          break;
        }
        Compute(pool, *sequence.table, sequence.text);
    }
    for (const Sequence& each : running) ExpectText(pool, *each.table, each.text);
  }
  EXPECT_GT(adopted, 1000);
  EXPECT_GT(full, 10);
  running.clear();
  EXPECT_EQ(pool.num_free(), 10);
}

}  // namespace
}  // namespace hydrant::kv::kv_cache_test
