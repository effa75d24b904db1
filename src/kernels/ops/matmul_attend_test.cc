// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/matmul_attend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/test_util/attention.h"
#include "kernels/test_util/packed.h"

namespace hydrant::kernels::matmul_attend_test {
namespace {

constexpr int64_t kInputs = 128;

// A binary tree of `nodes` behind `committed` positions, and a prompt's end of half as many rows in another sequence.
struct Case {
  Shape shape;
  int32_t committed, nodes;
  bool norms_and_biases = false;

  std::string Name() const { return shape.Name() + " nodes=" + std::to_string(nodes); }
};

// Both sequences in one pool, in blocks of their own.
class TwoSequences {
 public:
  explicit TwoSequences(const Case& c) : paths_(static_cast<size_t>(c.nodes)), cache_(c.shape, 2 * SlotsOf(c), 3) {
    for (int32_t n = 0; n < c.nodes; ++n) {
      std::vector<int32_t>& path = paths_[static_cast<size_t>(n)];
      if (n > 0) path = paths_[static_cast<size_t>(n - 1) / 2];
      path.push_back(c.committed + n);
      const auto length = c.committed + static_cast<int32_t>(path.size());
      rows_.push_back({cache_.blocks.data(), path.data(), length - 1, c.committed, path.back()});
    }
    const int32_t* others = cache_.blocks.data() + SlotsOf(c) / kBlockPositions;
    for (int32_t p = c.committed; p < c.committed + c.nodes / 2; ++p) rows_.push_back({others, nullptr, p, p + 1, p});
  }

  const TestCache& cache() const { return cache_; }
  std::span<const RowKv> rows() const { return rows_; }
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }

 private:
  static int32_t SlotsOf(const Case& c) {
    return (c.committed + c.nodes + kBlockPositions - 1) / kBlockPositions * kBlockPositions;
  }

  std::vector<std::vector<int32_t>> paths_;  // slots
  TestCache cache_;
  std::vector<RowKv> rows_;
};

// Of q, k and v as `table` reads them: 4-bit, 8-bit and 4-bit.
class Weights {
 public:
  Weights(const KernelTable& table, const Case& c) : norm_(RandomFloats(c.shape.head_dim, 7)) {
    const int64_t heads[] = {c.shape.num_heads, c.shape.num_kv_heads, c.shape.num_kv_heads};
    for (size_t i = 0; i < 3; ++i) {
      const int64_t outputs = heads[i] * c.shape.head_dim;
      const auto seed = static_cast<uint32_t>(i);
      matrices_[i] = std::make_unique<TestPackedMatrix>(TypeIn(table.layout(), i != 1), outputs, kInputs, seed);
      weights_[i] = Weight::Of(matrices_[i]->matrix());
      if (c.norms_and_biases) biases_[i] = RandomFloats(outputs, seed + 10);
    }
    if (c.norms_and_biases) norms_ = {norm_, norm_, 1e-5F};
  }

  QkvJobs Jobs(Rows q, Rows k, Rows v) const {
    return {{&weights_[0], biases_[0], q}, {&weights_[1], biases_[1], k}, {&weights_[2], biases_[2], v}};
  }
  const HeadNorms& norms() const { return norms_; }

 private:
  std::vector<float> norm_;
  std::array<std::unique_ptr<TestPackedMatrix>, 3> matrices_;
  std::array<Weight, 3> weights_;
  std::array<std::vector<float>, 3> biases_;
  HeadNorms norms_;
};

// What a way of attending leaves behind.
struct Left {
  Matrix out;
  std::vector<uint8_t> cache;

  Left(const TwoSequences& sequences, int64_t width)
      : out(sequences.num_rows(), width), cache(sequences.cache().bytes) {}
  KvLayer Layer(KvLayer kv) {
    kv.data = cache.data();
    return kv;
  }
};

void CheckCase(Queue& queue, const Case& c, const std::string& name) {
  const TwoSequences sequences(c);
  const Weights weights(*queue.table, c);
  const Shape& shape = c.shape;
  const int64_t rows = sequences.num_rows(), q_width = shape.num_heads * shape.head_dim;
  const int64_t kv_width = shape.num_kv_heads * shape.head_dim;
  const Matrix cos = RandomMatrix(rows, shape.head_dim / 2, 4), sin = RandomMatrix(rows, shape.head_dim / 2, 5);
  const HeadRotation rotation{weights.norms(), cos, sin};
  AttentionPlan plan;
  plan.Make(sequences.rows(), OptionsFor(shape, 0), shape.num_kv_heads, queue.pool->num_threads());
  MatmulInput input;
  input.Reserve(*queue.table, InputKind::kInt8, rows, kInputs);
  input.Load(queue, RandomMatrix(rows, kInputs, 6));

  Matrix q(rows, q_width), k(rows, kv_width), v(rows, kv_width);
  const QkvJobs jobs = weights.Jobs(q, k, v);
  Left expected(sequences, q_width), outside(sequences, q_width), inside(sequences, q_width);
  const MatmulJob apart[] = {jobs.q, jobs.k, jobs.v};
  Matmul(queue, input, apart);
  RotateStoreAttend(queue, q, k, v, rotation, plan, expected.Layer(sequences.cache().kv), expected.out);
  MatmulAttend(queue, input, jobs, rotation, plan, outside.Layer(sequences.cache().kv), outside.out);
  Region(queue, [&](Queue& own) {
    MatmulAttend(own, input, jobs, rotation, plan, inside.Layer(sequences.cache().kv), inside.out);
  });
  Left own_heads(sequences, q_width);
  Matrix own_q(rows, q_width), own_k(rows, kv_width), own_v(rows, kv_width);
  const QkvJobs own_jobs = weights.Jobs(own_q, own_k, own_v);
  Region(queue, [&](Queue& own) {
    MatmulQkv(own, input, own_jobs, plan, sequences.cache().kv);
    RotateStoreAttend(own, own_q, own_k, own_v, rotation, plan, own_heads.Layer(sequences.cache().kv), own_heads.out);
  });
  ExpectSameBits(own_heads.out, expected.out, name + " by heads of threads");
  EXPECT_TRUE(own_heads.cache == expected.cache) << name << " by heads of threads: other keys or values";
  ExpectSameBits(outside.out, expected.out, name);
  ExpectSameBits(inside.out, expected.out, name + " in a region");
  EXPECT_TRUE(outside.cache == expected.cache) << name << ": other keys or values";
  EXPECT_TRUE(inside.cache == expected.cache) << name << " in a region: other keys or values";
}

TEST(MatmulAttendTest, GivesTheBitsOfProductsAndAttentionApart) {
  const Case cases[] = {{{DType::kF32, 2, 2, 16}, 0, 1},
                        {{DType::kBF16, 6, 3, 48}, 29, 5, true},
                        {{DType::kBF16, 4, 4, 32}, 64, 17},
                        {{DType::kF16, 3, 1, 16}, 7, 33}};
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    for (const Case& c : cases) CheckCase(queue, c, name + ", " + c.Name());
  });
}

// So many outputs that a single thread goes through its five heads in rounds of two, two and one.
TEST(MatmulAttendTest, HeadsInRounds) {
  const Case c{{DType::kBF16, 35, 5, 64}, 40, 100};
  base::ThreadPool one(1, false), two(2, false);
  for (const KernelTable* table : AvailableKernels()) {
    for (base::ThreadPool* pool : {&one, &two}) {
      Queue queue{pool, table};
      CheckCase(queue, c, std::string(table->name) + ", " + c.Name());
    }
  }
}

// All that rows of both sequences attend to and write lies in the pieces, whatever their size; of a budget the first
// heads' get all.
TEST(MatmulAttendTest, KeysAndValuesOfHeadsLieInPieces) {
  for (const Case& c : {Case{{DType::kBF16, 6, 3, 48}, 29, 5}, Case{{DType::kF32, 4, 4, 20}, 64, 17}}) {
    const TwoSequences sequences(c);
    const KvLayer& kv = sequences.cache().kv;
    AttentionPlan plan;
    plan.Make(sequences.rows(), OptionsFor(c.shape, 0), c.shape.num_kv_heads, 2);
    for (const int64_t bytes : {128, 640, 4096, 1 << 20}) {
      std::vector<const uint8_t*> pieces, few;
      ListKv(plan, kv, 1, 3, bytes, 1 << 20, pieces);
      ListKv(plan, kv, 1, 3, bytes, 3, few);
      ASSERT_EQ(few.size(), std::min<size_t>(3, pieces.size()));
      EXPECT_TRUE(std::equal(few.begin(), few.end(), pieces.begin()));
      std::sort(pieces.begin(), pieces.end());
      const auto listed = [&](const uint8_t* at) {
        const auto after = std::upper_bound(pieces.begin(), pieces.end(), at);
        return after != pieces.begin() && at < *std::prev(after) + bytes;
      };
      for (const RowKv& row : sequences.rows()) {
        for (int32_t p = 0; p <= row.position; ++p) {
          const int32_t slot = p < row.identity_length ? p : row.path[p - row.identity_length];
          for (const int64_t head : {1, 2}) {
            for (int64_t d = 0; d < kv.head_dim; ++d) {
              ASSERT_TRUE(listed(kv.key(row.blocks, head, slot, d))) << c.Name() << " bytes=" << bytes << " p=" << p;
              ASSERT_TRUE(listed(kv.value(row.blocks, head, slot, d))) << c.Name() << " bytes=" << bytes << " p=" << p;
            }
          }
        }
      }
      EXPECT_FALSE(listed(kv.key(sequences.rows()[0].blocks, 0, 0, 0)) && bytes < kv.block_bytes()) << "another head's";
    }
  }
}

TEST(MatmulAttendTest, IsForWholeHeadsAndByTilesForMany) {
  base::ThreadPool pool(2, false);
  for (const KernelTable* table : AvailableKernels()) {
    Queue queue{&pool, table};
    const bool tiles = table->multiplies_by_tiles;
    const auto can = [&](const Shape& shape, int64_t inputs = kInputs) {
      const Weights weights(*table, {shape, 0, 1});
      Matrix none;
      KvLayer kv;
      kv.num_kv_heads = shape.num_kv_heads;
      kv.head_dim = shape.head_dim;
      QkvJobs jobs = weights.Jobs(none, none, none);
      Weight q = *jobs.q.weight;
      q.inputs = inputs;
      jobs.q.weight = &q;
      return CanMatmulAttend(queue, jobs, kv);
    };
    EXPECT_TRUE(can({DType::kBF16, 8, 8, 64})) << table->name;
    EXPECT_EQ(can({DType::kBF16, 8, 8, 64}, 896), tiles) << table->name << ": many inputs";
    EXPECT_FALSE(can({DType::kBF16, 8, 8, 72})) << table->name << ": a panel would hold parts of two heads";
    EXPECT_EQ(can({DType::kBF16, 8, 8, 32}), !tiles) << table->name << ": few panels for each thread";
    EXPECT_EQ(can({DType::kBF16, 8, 2, 256}), !tiles) << table->name << ": one head for each thread";
    EXPECT_EQ(can({DType::kBF16, 9, 9, 64}), tiles) << table->name << ": a head more for one thread";
  }
}

}  // namespace
}  // namespace hydrant::kernels::matmul_attend_test
