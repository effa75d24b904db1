// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/test_util/attention.h"

namespace hydrant::kernels::attention_test {
namespace {

// Softmax attention of one row and head in double, and how far f32 may be from it.
struct Reference {
  std::vector<double> out;
  double tolerance = 0;
};
Reference Attend(const TestCache& cache, const float* q, const RowKv& row, int64_t head,
                 const AttentionOptions& options) {
  const int64_t width = cache.shape.head_dim, kv_head = head / (cache.shape.num_heads / cache.shape.num_kv_heads);
  const int32_t first = options.window > 0 ? std::max(0, row.position - options.window + 1) : 0;
  const bool bf16 = cache.shape.dtype == DType::kBF16;
  std::vector<double> scores;
  std::vector<int64_t> slots;
  double worst_score = 0, largest_value = 0;
  for (int32_t p = first; p <= row.position; ++p) {
    const int64_t slot = p < row.identity_length ? p : row.path[p - row.identity_length];
    double score = 0, magnitude = 0;
    for (int64_t d = 0; d < width; ++d) {
      const float x = bf16 ? BFloat16ToFloat(FloatToBFloat16(q[d])) : q[d];
      const double product = static_cast<double>(x) * cache.Key(kv_head, slot, d);
      score += product;
      magnitude += std::abs(product);
      largest_value = std::max(largest_value, std::abs(cache.Value(kv_head, slot, d)));
    }
    scores.push_back(score * static_cast<double>(options.scale));
    slots.push_back(slot);
    worst_score = std::max(worst_score, magnitude * static_cast<double>(options.scale));
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  Reference reference{std::vector<double>(static_cast<size_t>(width), 0.0)};
  double sum = 0;
  for (double& score : scores) sum += (score = std::exp(score - top));
  for (size_t i = 0; i < scores.size(); ++i) {
    for (int64_t d = 0; d < width; ++d) {
      reference.out[static_cast<size_t>(d)] += scores[i] / sum * cache.Value(kv_head, slots[i], d);
    }
  }
  // A score is off by Dh + 3 roundings of its magnitude, which moves its weight by that much; exp adds 4, sums over 32
  // positions 32 more, and each merge of a block 3. Weights of bf16 are rounded to 8 bits, on both sides of the
  // division.
  const int32_t num_blocks = row.position / kBlockPositions + 1;
  const double blocks = num_blocks;
  const double roundings =
      2 * worst_score * (static_cast<double>(width) + 3) + 2 * (40 + 7 * blocks) + (bf16 ? 0x1p16 : 0.0);
  reference.tolerance = roundings * kEpsilon * largest_value;
  return reference;
}

// With `q_scale` 60 scores lie up to some 100 apart: references rise in some blocks, and in others scores lie above
// them by less than it takes.
void CheckRows(const TestCache& cache, const std::vector<RowKv>& rows, int32_t window, float q_scale = 1.0F) {
  const Shape& shape = cache.shape;
  const auto count = static_cast<int64_t>(rows.size());
  const Matrix q = RandomMatrix(count, shape.num_heads * shape.head_dim, 77, q_scale);
  const AttentionOptions options = OptionsFor(shape, window);
  std::map<const KernelTable*, Matrix> expected;  // of twins
  ForEveryAttention([&](Queue& queue, const std::string& name) {
    Matrix out(count, q.cols());
    Attention(queue, q, rows, cache.kv, options, out);
    const KernelTable* twin = &AttentionTwin(*queue.table, shape.dtype);
    if (queue.table != twin || queue.pool->num_threads() > 1) {
      return ExpectSameBits(out, expected.at(twin), shape.Name() + " window " + std::to_string(window) + " " + name);
    }
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t h = 0; h < shape.num_heads; ++h) {
        const int64_t begin = h * shape.head_dim;
        const Reference reference = Attend(cache, q.row(r) + begin, rows[static_cast<size_t>(r)], h, options);
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          ASSERT_NEAR(static_cast<double>(out.row(r)[begin + d]), reference.out[static_cast<size_t>(d)],
                      reference.tolerance)
              << name << " " << shape.Name() << " row " << r << " position " << rows[static_cast<size_t>(r)].position
              << " window " << window;
        }
      }
    }
    expected.emplace(twin, std::move(out));
  });
}

TEST(AttentionTest, PromptRowsAroundBlockBorders) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t head_dim : {8, 12, 24, 64, 80, 128}) {
      const TestCache cache({dtype, 2, 1, head_dim}, 140, 1);
      std::vector<RowKv> rows;
      for (const int32_t position : {0, 1, 14, 15, 16, 30, 31, 32, 33, 63, 64, 65, 100, 127, 128, 139}) {
        rows.push_back(PromptRow(cache, position));
      }
      for (const int32_t window : {0, 1, 5, 31, 32, 33, 70}) CheckRows(cache, rows, window);
      for (const int32_t window : {0, 70}) CheckRows(cache, rows, window, 60.0F);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(AttentionTest, HeadsShareKeysAndValues) {
  for (const Shape& shape :
       {Shape{DType::kF32, 1, 1, 16}, Shape{DType::kBF16, 3, 3, 24}, Shape{DType::kF16, 8, 2, 16},
        Shape{DType::kBF16, 14, 2, 64}, Shape{DType::kF32, 65, 1, 8}, Shape{DType::kF32, 10, 5, 40}}) {
    const TestCache cache(shape, 70, 2);
    CheckRows(cache, {PromptRow(cache, 69), PromptRow(cache, 0), PromptRow(cache, 40)}, 0);
  }
}

// Rows of a tree: committed positions in place, then the row's own ancestors in scattered slots.
TEST(AttentionTest, TreeRowsFollowTheirPath) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int32_t committed : {1, 30, 31, 32, 33, 64, 90}) {
      const TestCache cache({dtype, 4, 2, 24}, committed + 40, 3);
      const std::vector<std::vector<int32_t>> paths = {
          {committed},
          {committed, committed + 7},
          {committed, committed + 3, committed + 39, committed + 11, committed + 12}};
      std::vector<RowKv> rows;
      for (const auto& path : paths) {
        const auto depth = static_cast<int32_t>(path.size()) - 1;
        rows.push_back({cache.blocks.data(), path.data(), committed + depth, committed, path.back()});
      }
      for (const int32_t window : {0, 3, 33}) CheckRows(cache, rows, window);
      CheckRows(cache, rows, 0, 60.0F);
    }
  }
}

// The same keys and values give the same bits, whether they lie in a path or have been committed in place, alone or
// among other rows.
TEST(AttentionTest, ARowDoesNotDependOnPlacesOrOtherRows) {
  const Shape shape{DType::kBF16, 4, 2, 64};
  const TestCache in_place(shape, 70, 4);
  // Slots 60..69 moved to 80..89.
  const int64_t width = shape.num_kv_heads * shape.head_dim;
  TestCache moved(shape, 96, 5);
  std::vector<int32_t> path(10);
  std::iota(path.begin(), path.end(), 80);
  base::ThreadPool one(1, false);
  Queue portable{&one, &PortableKernels()};
  std::vector<RowKv> to(70);
  for (int32_t p = 0; p < 70; ++p)
    to[static_cast<size_t>(p)] = {moved.blocks.data(), nullptr, p, p + 1, p < 60 ? p : p + 20};
  StoreKv(portable, ConstRows(in_place.k.data(), 70, width, in_place.k.stride()),
          ConstRows(in_place.v.data(), 70, width, in_place.v.stride()), to, moved.kv);
  const Matrix q = RandomMatrix(33, shape.num_heads * shape.head_dim, 6);
  std::vector<RowKv> here, there;
  for (int32_t r = 0; r < 33; ++r) {
    here.push_back(PromptRow(in_place, 37 + r));
    there.push_back({moved.blocks.data(), path.data(), 37 + r, std::min(60, 38 + r), 0});
  }
  ForEveryAttention([&](Queue& queue, const std::string& name) {
    Matrix a(33, q.cols()), b(33, q.cols()), alone(1, q.cols());
    Attention(queue, q, here, in_place.kv, OptionsFor(shape, 0), a);
    Attention(queue, q, there, moved.kv, OptionsFor(shape, 0), b);
    ExpectSameBits(a, b, name);
    for (int64_t r = 0; r < 33; ++r) {
      Attention(queue, ConstRows(q.row(r), 1, q.cols(), q.stride()), {&here[static_cast<size_t>(r)], 1}, in_place.kv,
                OptionsFor(shape, 0), alone);
      ExpectSameBits(alone, ConstRows(a.row(r), 1, q.cols(), a.stride()), name);
    }
  });
}

TEST(AttentionTest, EveryRowOfATreeHasTheBitsOfPlainDecoding) {
  uint32_t seed = 20;
  for (const Shape& shape : {Shape{DType::kBF16, 3, 3, 48}, Shape{DType::kF32, 4, 2, 20}, Shape{DType::kF16, 6, 2, 32},
                             Shape{DType::kBF16, 14, 2, 16}, Shape{DType::kBF16, 70, 1, 8}}) {
    for (const std::array<int32_t, 3>& sizes :
         {std::array<int32_t, 3>{5, 9, 0}, {31, 40, 0}, {64, 13, 0}, {61, 70, 33}}) {
      const int32_t committed = sizes[0], num_nodes = sizes[1], window = sizes[2];
      const TreeAndChains both(shape, committed, num_nodes, ++seed);
      const AttentionOptions options = OptionsFor(shape, window);
      const Matrix q = RandomMatrix(num_nodes, shape.num_heads * shape.head_dim, seed);
      ForEveryAttention([&](Queue& queue, const std::string& name) {
        Matrix out(num_nodes, q.cols()), alone(1, q.cols());
        Attention(queue, q, both.rows, both.tree.kv, options, out);
        for (int64_t r = 0; r < num_nodes; ++r) {
          const auto n = static_cast<size_t>(r);
          Attention(queue, ConstRows(q.row(r), 1, q.cols(), q.stride()), {&both.chain_rows[n], 1}, both.chains[n]->kv,
                    options, alone);
          ExpectSameBits(ConstRows(out.row(r), 1, out.cols(), out.stride()), alone,
                         shape.Name() + " node " + std::to_string(r) + " of " + std::to_string(num_nodes) + " after " +
                             std::to_string(committed) + ", " + name);
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

// A node's keys and values may be anything, even infinite: rows that do not attend to it do not multiply them, not even
// by 0. Chains in place, whose rows share a block's values up to where each ends, and trees.
TEST(AttentionTest, ARowDoesNotMultiplyValuesThatItDoesNotSee) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Shape shape{dtype, 4, 2, 24};
    for (const int32_t committed : {4, 29, 31, 32, 35}) {
      for (const bool chain : {true, false}) {
        const TestCache finite(shape, committed + 8, 11);
        TestCache infinite(shape, committed + 8, 11);
        std::vector<std::vector<int32_t>> paths;
        std::vector<RowKv> rows, other_rows;
        for (int32_t n = 0; n < 8; ++n) {
          paths.push_back(n == 0 ? std::vector<int32_t>{} : chain ? paths.back() : paths[static_cast<size_t>(n / 2)]);
          paths.back().push_back(committed + n);
        }
        for (const auto& path : paths) {
          const auto position = committed + static_cast<int32_t>(path.size()) - 1;
          rows.push_back({finite.blocks.data(), path.data(), position, committed, path.back()});
          other_rows.push_back(rows.back());
          other_rows.back().blocks = infinite.blocks.data();
        }
        // The last node, which nobody but itself sees.
        Matrix bad(1, infinite.k.cols());
        std::ranges::fill(bad.row_span(0), std::numeric_limits<float>::infinity());
        base::ThreadPool one(1, false);
        Queue portable{&one, &PortableKernels()};
        StoreKv(portable, bad, bad, {&other_rows[7], 1}, infinite.kv);
        const Matrix q = RandomMatrix(8, shape.num_heads * shape.head_dim, 12);
        ForEveryAttention([&](Queue& queue, const std::string& name) {
          Matrix expected(8, q.cols()), found(8, q.cols());
          Attention(queue, q, rows, finite.kv, OptionsFor(shape, 0), expected);
          Attention(queue, q, other_rows, infinite.kv, OptionsFor(shape, 0), found);
          ExpectSameBits(ConstRows(found.row(0), 7, q.cols(), found.stride()),
                         ConstRows(expected.row(0), 7, q.cols(), expected.stride()),
                         shape.Name() + (chain ? " chain after " : " tree after ") + std::to_string(committed) + name);
        });
      }
    }
  }
}

// Rows of several sequences, prompts cut anywhere, and a call from inside a parallel region.
TEST(AttentionTest, ChunksSequencesAndRegionsChangeNothing) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Shape shape{dtype, 4, 2, 40};
    TestCache cache(shape, 256, 7);
    // A second sequence over the same pool: the same blocks in another order.
    std::vector<int32_t> other(cache.blocks.rbegin(), cache.blocks.rend());
    std::vector<RowKv> rows;
    for (int32_t p = 0; p < 150; ++p) rows.push_back(PromptRow(cache, p));
    for (int32_t p = 90; p < 190; p += 3) rows.push_back({other.data(), nullptr, p, p + 1, p});
    const auto count = static_cast<int64_t>(rows.size());
    const Matrix q = RandomMatrix(count, shape.num_heads * shape.head_dim, 8);
    const AttentionOptions options = OptionsFor(shape, 0);
    ForEveryAttention([&](Queue& queue, const std::string& name) {
      Matrix whole(count, q.cols()), cut(count, q.cols()), region(count, q.cols());
      Attention(queue, q, rows, cache.kv, options, whole);
      for (int64_t begin = 0, step = 1; begin < count; begin += step, step = step % 31 * 2 + 1) {
        const int64_t size = std::min(step, count - begin);
        Attention(queue, ConstRows(q.row(begin), size, q.cols(), q.stride()),
                  std::span(rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(size)), cache.kv, options,
                  Rows(cut.row(begin), size, cut.cols(), cut.stride()));
      }
      ExpectSameBits(cut, whole, name);
      Region(queue, [&](Queue& own) { Attention(own, q, rows, cache.kv, options, region); });
      ExpectSameBits(region, whole, name + " in a region");
    });
  }
}

TEST(AttentionTest, NoRows) {
  const TestCache cache({DType::kF32, 2, 1, 16}, 4, 1);
  ForEveryAttention([&](Queue& queue, const std::string&) {
    Matrix none(0, 32);
    Attention(queue, none, {}, cache.kv, OptionsFor(cache.shape, 0), none);
  });
}

TEST(StoreKvTest, RoundsToNearestEvenIntoTheRowsSlot) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Shape shape{dtype, 3, 3, 12};
    const Matrix k = RandomMatrix(40, 36, 8), v = RandomMatrix(40, 36, 9);
    ForEveryAttention([&](Queue& queue, const std::string& name) {
      TestCache cache(shape, 40, 10);
      std::vector<RowKv> rows;
      for (int32_t r = 0; r < 40; ++r) rows.push_back({cache.blocks.data(), nullptr, r, r + 1, 39 - r});
      StoreKv(queue, k, v, rows, cache.kv);
      for (int64_t r = 0; r < 40; ++r) {
        for (int64_t c = 0; c < 36; ++c) {
          uint8_t key[4] = {}, value[4] = {};
          StoreAs(dtype, k.row(r)[c], key);
          StoreAs(dtype, v.row(r)[c], value);
          ASSERT_EQ(std::memcmp(cache.At(false, c / 12, 39 - r, c % 12), key, SizeOf(dtype)), 0) << name;
          ASSERT_EQ(std::memcmp(cache.At(true, c / 12, 39 - r, c % 12), value, SizeOf(dtype)), 0) << name;
        }
      }
    });
  }
}

// Runs of neighbouring slots, which some targets write together, from every place of a block and over its end; slots
// that are not written keep what they held.
TEST(StoreKvTest, RowsSideBySideAreWhereOneByOneWouldPutThem) {
  for (const int64_t head_dim : {8, 16, 40, 64, 128}) {
    const Shape shape{DType::kBF16, 1, 1, head_dim};
    for (int32_t first = 0; first < 34; first += 1 + first % 3) {
      for (const int32_t count : {1, 2, 3, 16, 17, 37}) {
        const Matrix k = RandomMatrix(count, head_dim, 11), v = RandomMatrix(count, head_dim, 12);
        TestCache expected(shape, 80, 13);
        const auto row_at = [&](const TestCache& cache, int32_t r) {
          const int32_t slot = first + r + (r > 20 ? 1 : 0);  // a gap
          return RowKv{cache.blocks.data(), nullptr, slot, slot + 1, slot};
        };
        for (int32_t r = 0; r < count; ++r) {
          base::ThreadPool one(1, false);
          Queue portable{&one, &PortableKernels()};
          const RowKv row = row_at(expected, r);
          StoreKv(portable, {k.row(r), 1, head_dim, k.stride()}, {v.row(r), 1, head_dim, v.stride()}, {&row, 1},
                  expected.kv);
        }
        ForEveryAttention([&](Queue& queue, const std::string& name) {
          TestCache cache(shape, 80, 13);
          std::vector<RowKv> rows;
          for (int32_t r = 0; r < count; ++r) rows.push_back(row_at(cache, r));
          StoreKv(queue, k, v, rows, cache.kv);
          ASSERT_EQ(cache.bytes, expected.bytes) << name << " Dh " << head_dim << " first " << first << " of " << count;
        });
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::kernels::attention_test
