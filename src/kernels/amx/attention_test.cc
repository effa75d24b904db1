// SPDX-License-Identifier: Apache-2.0
// Attention by tiles: its forms against each other, any number of rows against one, and the instructions themselves.
// What the tables offer is tested in attention_test.cc besides.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include "kernels/amx/entries.h"
#include "kernels/avx512/entries.h"
#include "kernels/test_util/amx_trap.h"
#endif
#include "kernels/cpu_features.h"
#include "kernels/portable/entries.h"
#include "kernels/test_util/attention.h"

namespace hydrant::kernels::amx_attention_test {
namespace {

base::ThreadPool& OneThread() {
  static base::ThreadPool pool(1, false);
  return pool;
}

using AttentionEntry = void (*)(const AttentionArgs& args);

Matrix Attend(AttentionEntry entry, const TestCache& cache, ConstRows q, std::span<const RowKv> rows, int32_t window) {
  KernelTable table = KernelsFor("amx-twin");
  table.attention = entry;
  Queue queue{&OneThread(), &table};
  Matrix out(q.rows, q.cols);
  Attention(queue, q, rows, cache.kv, OptionsFor(cache.shape, window), out);
  return out;
}

AttentionEntry Twin() { return KernelsFor("amx-twin").attention; }

ConstRows OneRow(const Matrix& matrix, int64_t row) { return {matrix.row(row), 1, matrix.cols(), matrix.stride()}; }

// `rows` rows of a prompt up to position `context`, or of a tree after so many committed positions.
void ExpectAlone(const Shape& shape, int32_t num_rows, int32_t context, int32_t window) {
  const std::string what = shape.Name() + " rows " + std::to_string(num_rows) + " context " + std::to_string(context) +
                           " window " + std::to_string(window);
  const TreeAndChains tree(shape, context + 1, num_rows, 30);
  std::vector<RowKv> prompt;
  for (int32_t r = 0; r < num_rows; ++r) prompt.push_back(PromptRow(tree.tree, context + r));
  const float q_scale = context < 100 ? 1.0F : 60.0F;  // large scores: references rise in several blocks
  const Matrix q = RandomMatrix(num_rows, shape.num_heads * shape.head_dim, 31, q_scale);
  const Matrix in_prompt = Attend(Twin(), tree.tree, q, prompt, window);
  const Matrix in_tree = Attend(Twin(), tree.tree, q, tree.rows, window);
  for (int32_t r = 0; r < num_rows; r += 1 + num_rows / 7) {
    const auto n = static_cast<size_t>(r);
    ExpectSameBits(OneRow(in_prompt, r), Attend(Twin(), tree.tree, OneRow(q, r), {&prompt[n], 1}, window), what);
    ExpectSameBits(OneRow(in_tree, r), Attend(Twin(), *tree.chains[n], OneRow(q, r), {&tree.chain_rows[n], 1}, window),
                   what + " tree");
  }
}

TEST(AmxAttentionTest, ARowDoesNotDependOnTheOthers) {
  for (const int64_t head_dim : {16, 40, 64, 128}) {
    for (const int64_t group : {1, 3}) {
      const Shape shape{DType::kBF16, group, 1, head_dim};
      for (int32_t rows = 1; rows <= 70; rows += rows < 4 ? 1 : rows / 2) {
        for (const int32_t context : {0, 31, 95, 130}) {
          ExpectAlone(shape, rows, context, rows % 2 == 0 ? 0 : 37);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(AmxAttentionTest, PlainCodeGivesTheBitsOfVectorCode) {
  for (const Shape& shape : {Shape{DType::kBF16, 2, 1, 40}, Shape{DType::kBF16, 20, 1, 16}}) {
    for (const int32_t rows : {1, 9, 20}) {
      const TreeAndChains tree(shape, 40, rows, 32);
      const Matrix q = RandomMatrix(rows, shape.num_heads * shape.head_dim, 33, 60.0F);
      const Matrix expected = Attend(AttentionAmxTwin, tree.tree, q, tree.rows, 0);
      ExpectSameBits(Attend(Twin(), tree.tree, q, tree.rows, 0), expected, shape.Name());
    }
  }
}

// The largest denormals would round up to the smallest normal number; keys of 1e38 tell.
TEST(AmxAttentionTest, DenormalQueriesAreZero) {
  const Shape shape{DType::kBF16, 1, 1, 48};
  TestCache cache(shape, 40, 38);
  std::vector<RowKv> rows;
  for (int32_t p = 0; p < 40; ++p) rows.push_back(PromptRow(cache, p));
  Matrix k = RandomMatrix(40, 48, 39), q(40, 48);
  std::mt19937 random(40);
  for (int64_t r = 0; r < 40; ++r) {
    for (float& x : k.row_span(r)) x *= 1e38F;
    for (float& x : q.row_span(r))
      x = __builtin_bit_cast(float, static_cast<uint32_t>(0x007f7f00U + random() % 0x20000U));
  }
  Queue queue{&OneThread(), &KernelsFor("amx-twin")};
  StoreKv(queue, k, cache.v, rows, cache.kv);
  const Matrix expected = Attend(AttentionAmxTwin, cache, q, rows, 0);
  ExpectSameBits(Attend(Twin(), cache, q, rows, 0), expected, "");
#if defined(__x86_64__)
  if (DetectCpuFeatures().amx) ExpectSameBits(Attend(AttentionAmx, cache, q, rows, 0), expected, "");
#endif
}

// A position that holds NaN or infinity, and slots that hold what they held before, matter only to rows that look
// there.
TEST(AmxAttentionTest, WhatARowDoesNotSeeCannotMatter) {
  const Shape shape{DType::kBF16, 2, 1, 48};
  const TestCache clean(shape, 64, 34);
  const Matrix q = RandomMatrix(60, shape.num_heads * shape.head_dim, 35);
  std::vector<RowKv> rows;
  for (int32_t p = 0; p < 60; ++p) rows.push_back(PromptRow(clean, p));
  const Matrix expected = Attend(Twin(), clean, q, rows, 0);
  EXPECT_FALSE(std::isnan(expected.row(59)[0]));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    TestCache cache(shape, 64, 34);
    Matrix k(1, 48), v(1, 48);
    std::fill_n(k.row(0), 48, bad);
    std::fill_n(v.row(0), 48, bad);
    Queue queue{&OneThread(), &KernelsFor("amx-twin")};
    StoreKv(queue, k, v, {&rows[45], 1}, cache.kv);
    const Matrix out = Attend(Twin(), cache, q, rows, 0);
    for (int64_t r = 0; r < 45; ++r) ExpectSameBits(OneRow(out, r), OneRow(expected, r), "row " + std::to_string(r));
    for (int64_t r = 45; r < 60; ++r) EXPECT_TRUE(std::isnan(out.row(r)[0])) << r;
  }
}

#if defined(__x86_64__)
std::vector<RowKv> RowsAt(const TestCache& cache, int32_t first, int32_t count) {
  std::vector<RowKv> rows;
  for (int32_t r = 0; r < count; ++r) rows.push_back(PromptRow(cache, first + r));
  return rows;
}

TEST(AmxAttentionTest, TheInstructionsGiveTheBitsOfTheSoftware) {
  if (!DetectCpuFeatures().amx) GTEST_SKIP() << "this machine has no AMX: trapped instead";
  const Shape shape{DType::kBF16, 3, 1, 80};
  for (int32_t rows = 1; rows <= 64; rows += 7) {
    const TreeAndChains tree(shape, 70, rows, 36);
    const Matrix q = RandomMatrix(rows, shape.num_heads * shape.head_dim, 37, 60.0F);
    ExpectSameBits(Attend(AttentionAmx, tree.tree, q, tree.rows, 0), Attend(Twin(), tree.tree, q, tree.rows, 0), "");
  }
}

TEST(AmxAttentionTest, TheTrappedInstructionsGiveTheBitsOfTheSoftware) {
  if (DetectCpuFeatures().amx) GTEST_SKIP() << "this machine has AMX: nothing to trap";
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this machine has no AVX-512";
  for (const int64_t head_dim : {40, 64}) {
    for (const int32_t rows : {1, 5, 17, 40}) {
      const Shape shape{DType::kBF16, 1, 1, head_dim};
      const TreeAndChains tree(shape, 40, rows, 38);
      const Matrix q = RandomMatrix(rows, head_dim, 39);
      const Matrix expected = Attend(Twin(), tree.tree, q, tree.rows, 0);
      const TileTrap trap;
      ExpectSameBits(Attend(AttentionAmx, tree.tree, q, tree.rows, 0), expected, shape.Name());
      EXPECT_GT(trap.products(), 0);
      EXPECT_FALSE(trap.configured());
    }
  }
}

// One row's bits by vectors against those of tiles in software. Returns the number of products by tiles where they can
// be counted, else -1.
int64_t ExpectOneColumn(const TestCache& cache, const Matrix& q, int32_t position, int32_t window,
                        const std::string& what) {
  const RowKv row = PromptRow(cache, position);
  const Matrix expected = Attend(Twin(), cache, q, {&row, 1}, window);
  if (DetectCpuFeatures().amx) {
    ExpectSameBits(Attend(AttentionAmxQuads, cache, q, {&row, 1}, window), expected, what);
    return -1;
  }
  const TileTrap trap;
  ExpectSameBits(Attend(AttentionAmxQuads, cache, q, {&row, 1}, window), expected, what);
  return trap.products();
}

// Keys and values of `cache` again, which have changed.
void StoreAgain(TestCache& cache) {
  std::vector<RowKv> rows;
  for (int32_t p = 0; p < cache.k.rows(); ++p) rows.push_back(PromptRow(cache, p));
  Queue queue{&OneThread(), &KernelsFor("amx-twin")};
  StoreKv(queue, cache.k, cache.v, rows, cache.kv);
}

// Blocks whole and in part from either end, pairs torn apart; what lies before the window and behind the row is NaN.
// Where scores lie 60 times as far apart some weights are near exp(-87), and their products with values denormal: some
// of those rows go to tiles.
TEST(AmxAttentionTest, OneColumnGivesTheBitsOfTilesByVectors) {
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this machine has no AVX-512";
  int fallbacks = 0;
  for (const int64_t head_dim : {32, 64, 96, 128, 160}) {
    const Shape shape{DType::kBF16, 1, 1, head_dim};
    for (const int32_t position : {0, 1, 30, 31, 32, 33, 64, 95, 130, 200}) {
      for (const int32_t window : {0, 1, 2, 37, 64}) {
        TestCache cache(shape, position + 1, 50);
        if (window > 0 && position >= window) {
          for (Matrix* matrix : {&cache.k, &cache.v}) {
            std::ranges::fill(matrix->row_span(position - window), std::numeric_limits<float>::quiet_NaN());
          }
          StoreAgain(cache);
        }
        for (const float q_scale : {1.0F, 60.0F}) {
          const std::string what = shape.Name() + " position " + std::to_string(position) + " window " +
                                   std::to_string(window) + " scale " + std::to_string(q_scale);
          const int64_t products =
              ExpectOneColumn(cache, RandomMatrix(1, head_dim, 51, q_scale), position, window, what);
          if (q_scale == 1.0F) {
            EXPECT_LE(products, 0) << what;
          }
          fallbacks += products > 0 ? 1 : 0;
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_TRUE(fallbacks > 0 || DetectCpuFeatures().amx) << "products can be counted, and none was";
}

// What tiles flush: keys, values and queries from 2^-149 to some numbers that are not denormal but whose products and
// sums are, exact or not. And NaN and infinity, seen by the row or not.
TEST(AmxAttentionTest, OneColumnOfDenormalsAndInfinitiesGivesTheBitsOfTiles) {
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this machine has no AVX-512";
  constexpr int64_t kHeadDim = 64;
  constexpr int32_t kPosition = 70;
  const Shape shape{DType::kBF16, 1, 1, kHeadDim};
  std::mt19937 random(52);
  for (int round = 0; round < 60; ++round) {
    TestCache cache(shape, kPosition + 1, 53);
    Matrix q = RandomMatrix(1, kHeadDim, 54);
    const auto scale_by = [&](Matrix& matrix, int lowest, int highest) {
      for (int64_t r = 0; r < matrix.rows(); ++r) {
        for (float& x : matrix.row_span(r)) {
          const int power = lowest + static_cast<int>(random() % static_cast<uint32_t>(highest - lowest + 1));
          x = std::ldexp(random() % 4 == 0 ? 1.0F : x, power);
        }
      }
    };
    if (round % 3 == 0) scale_by(cache.k, -140, -60);
    if (round % 3 == 0) scale_by(q, -75, -60);
    if (round % 3 != 0) scale_by(cache.v, round % 3 == 1 ? -149 : -128, -120);
    if (round % 10 == 9) cache.v.row(round)[3] = std::numeric_limits<float>::infinity();
    if (round % 10 == 8) cache.k.row(round)[5] = std::numeric_limits<float>::quiet_NaN();
    StoreAgain(cache);
    for (const int32_t window : {0, 12, 37}) {
      ExpectOneColumn(cache, q, kPosition, window,
                      "round " + std::to_string(round) + " window " + std::to_string(window));
      if (HasFatalFailure()) return;
    }
  }
}

// A score's last bit shows in a weight, which has eight, once in some thousand.
TEST(AmxAttentionTest, OneColumnAddsInTheOrderOfTiles) {
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this machine has no AVX-512";
  const TestCache cache({DType::kBF16, 1, 1, 128}, 201, 56);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    ExpectOneColumn(cache, RandomMatrix(1, 128, seed, 15.0F), 200, 0, "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

// 2^-130, and 2^-126 less what weights of e^-17 take off: denormal to 24 bits, which tiles flush, 2^-126 to a
// denormal's fewer bits.
TEST(AmxAttentionTest, OneColumnKnowsDenormalsThatAreExactOrRoundedUp) {
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this machine has no AVX-512";
  constexpr int64_t kHeadDim = 32;
  TestCache cache({DType::kBF16, 1, 1, kHeadDim}, 4, 55);
  const float scores[] = {0, -400, -96, -400}, values[] = {0x1p-126F, 0, -0x1p-126F, 0};
  for (int64_t p = 0; p < 4; ++p) {
    std::ranges::fill(cache.k.row_span(p), 0.0F);
    cache.k.row(p)[0] = scores[p];
    std::ranges::fill(cache.v.row_span(p), values[p]);
  }
  StoreAgain(cache);
  Matrix q(1, kHeadDim);
  std::ranges::fill(q.row_span(0), 0.0F);
  q.row(0)[0] = 1;
  const RowKv row = PromptRow(cache, 3);
  EXPECT_EQ(Attend(Twin(), cache, q, {&row, 1}, 0).row(0)[0], 0.0F);
  ExpectOneColumn(cache, q, 3, 0, "rounded up");
  std::ranges::fill(cache.v.row_span(0), 0x1p-130F);  // times 1, exactly
  StoreAgain(cache);
  ExpectOneColumn(cache, q, 0, 0, "exact");
}

// 64 columns of 128 dimensions over two whole blocks: what docs/benchmarks reckons with.
TEST(AmxAttentionTest, ProductsAreAsMany) {
  if (DetectCpuFeatures().amx || !DetectCpuFeatures().avx512) GTEST_SKIP() << "nothing to trap";
  const Shape shape{DType::kBF16, 64, 1, 128};
  const TestCache cache(shape, 64, 40);
  const Matrix q = RandomMatrix(1, shape.num_heads * shape.head_dim, 41);
  const std::vector<RowKv> rows = RowsAt(cache, 63, 1);
  const TileTrap trap;
  const Matrix out = Attend(AttentionAmx, cache, q, rows, 0);
  EXPECT_EQ(trap.products(), 2 * (32 + 32));
  EXPECT_EQ(trap.loads(), 2 * (2 * 4 * 4) + 2 * 4 * (4 + 2 * (2 + 2)));
  ExpectSameBits(out, Attend(Twin(), cache, q, rows, 0), "");
}
#endif

}  // namespace
}  // namespace hydrant::kernels::amx_attention_test
