// SPDX-License-Identifier: Apache-2.0
#include "draft/heads/head_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/ops/small_work.h"
#include "kernels/test_util/test_util.h"
#include "model/linear_packer.h"
#include "model/weight_arranger.h"
#include "sampling/choose.h"

namespace hydrant::draft::head_stack_test {
namespace {

constexpr int64_t kHidden = 128, kVocab = 300;
constexpr int64_t kFew = 8, kMany = 9;  // rows that every thread does by itself, and rows that are shared

class RandomHeads {
 public:
  explicit RandomHeads(quant::WeightFormat format) {
    base::ThreadPool pool(1, false);
    model::LinearPacker packer(&pool, {});
    for (Head& head : heads) {
      head.blocks = {Of(kHidden), Of(kHidden)};
      head.lm_head = Of(kVocab);
      for (model::Linear& block : head.blocks) packer.Add(block, {.format = format});
      packer.Add(head.lm_head, {.format = format});
    }
    packer.Run();
  }
  // As a queue's kernels read them.
  std::vector<Head> For(const kernels::Queue& queue) const {
    std::vector<Head> arranged = heads;
    model::WeightArranger arranger(queue.table, queue.pool);
    for (Head& head : arranged) {
      for (model::Linear& block : head.blocks) arranger.Arrange(block);
      arranger.Arrange(head.lm_head);
    }
    return arranged;
  }

 private:
  model::Linear Of(int64_t outputs) {
    values_.push_back(kernels::RandomFloats(outputs * kHidden, seed_++, 0.1F));
    model::Linear linear;
    linear.weight.data = reinterpret_cast<const uint8_t*>(values_.back().data());
    linear.weight.dtype = DType::kF32;
    linear.weight.shape = {outputs, kHidden};
    linear.bias = kernels::RandomFloats(outputs, seed_++);
    return linear;
  }

  std::vector<Head> heads{3};
  uint32_t seed_ = 1;
  std::vector<std::vector<float>> values_;
};

HeadOutput WantsLogits(Matrix& logits) {
  HeadOutput output;
  output.logits = logits;
  return output;
}

HeadOutput WantsBest(const std::vector<kernels::TopKRule>& rules, kernels::TopKOutput& best) {
  HeadOutput output;
  output.rules = rules;
  output.best = &best;
  return output;
}

struct Outcome {
  std::vector<Matrix> logits;                             // [heads] of [R, V]
  std::vector<std::vector<std::vector<int32_t>>> tokens;  // [heads][R]
};

// All heads over the first `rows` rows in one region, first for their logits, then for their best tokens.
Outcome RunHeads(kernels::Queue& queue, const std::vector<Head>& heads, const Matrix& x, const Matrix& linear,
                 int64_t rows) {
  HeadRunner runner(&queue);
  for (const Head& head : heads) runner.Uses(head);
  runner.Reserve(rows, kHidden);
  const std::vector<kernels::TopKRule> rules(static_cast<size_t>(rows), {.k = 5});
  Outcome outcome;
  std::vector<kernels::TopKOutput> best(heads.size());
  for (kernels::TopKOutput& one : best) {
    one.Reserve(queue.pool->num_threads(), rules, heads.front().lm_head.outputs());
    outcome.logits.emplace_back(rows, kVocab);
  }
  kernels::Region(queue, [&](kernels::Queue& own) {
    const kernels::ConstRows first = kernels::ConstRows(x).Part(0, rows);
    for (size_t h = 0; h < heads.size(); ++h) {
      runner.Run(own, heads[h], first, kernels::ConstRows(linear).Part(0, rows), WantsLogits(outcome.logits[h]));
    }
    for (size_t h = 0; h < heads.size(); ++h) runner.Run(own, heads[h], first, {}, WantsBest(rules, best[h]));
  });
  for (kernels::TopKOutput& one : best) {
    outcome.tokens.emplace_back();
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<const int32_t> found = one.Row(r);
      outcome.tokens.back().emplace_back(found.begin(), found.end());
    }
  }
  return outcome;
}

// Logits of rows (or rows + silu(linear)) without the runner, one op after the other.
Matrix SlowLogits(kernels::Queue& queue, const Head& head, const Matrix& rows, const Matrix* first_linear) {
  Matrix x(rows.rows(), kHidden);
  for (int64_t r = 0; r < rows.rows(); ++r) std::copy_n(rows.row(r), kHidden, x.row(r));
  if (first_linear != nullptr) kernels::ResidualSilu(queue, x, *first_linear, x);
  Matrix linear(x.rows(), kHidden), logits(x.rows(), kVocab);
  for (const model::Linear& block : head.blocks) {
    kernels::Matmul(queue, x, block.view(), block.bias, linear);
    kernels::ResidualSilu(queue, x, linear, x);
  }
  kernels::Matmul(queue, x, head.lm_head.view(), head.lm_head.bias, logits);
  return logits;
}

void ExpectRowsDoNotDependOnTheWay(quant::WeightFormat format) {
  const RandomHeads random(format);
  const Matrix x = kernels::RandomMatrix(kMany, kHidden, 90), linear = kernels::RandomMatrix(kMany, kHidden, 91);
  kernels::ForEveryQueue([&](kernels::Queue& queue, const std::string& name) {
    const std::vector<Head> heads = random.For(queue);
    for (const int64_t rows : {int64_t{1}, kFew, kMany}) {
      const Outcome found = RunHeads(queue, heads, x, linear, rows);
      for (size_t h = 0; h < heads.size(); ++h) {
        const std::string what = name + ", head " + std::to_string(h) + ", " + std::to_string(rows) + " rows";
        const Matrix logits = SlowLogits(queue, heads[h], x, &linear);
        const Matrix plain = SlowLogits(queue, heads[h], x, nullptr);
        kernels::ExpectSameBits(found.logits[h], kernels::ConstRows(logits).Part(0, rows), what);
        for (int64_t r = 0; r < rows; ++r) {
          std::vector<int32_t> best;
          sampling::TopK(plain.row_span(r), 5, best);
          EXPECT_EQ(found.tokens[h][static_cast<size_t>(r)], best) << what << ", row " << r;
        }
      }
    }
  });
}

TEST(HeadRunnerTest, EveryThreadForItselfOrTogetherTheRowsAreTheSame) {
  ASSERT_TRUE(kernels::IsSquareAlone(false, kFew, kHidden));
  ASSERT_FALSE(kernels::IsSquareAlone(false, kMany, kHidden));
  ExpectRowsDoNotDependOnTheWay(quant::WeightFormat::kW8A8);
  ExpectRowsDoNotDependOnTheWay(quant::WeightFormat::kW4A16);
}

TEST(HeadRunnerTest, FloatsAreSharedOut) {
  ASSERT_FALSE(kernels::IsSquareAlone(true, 1, kHidden));
  ExpectRowsDoNotDependOnTheWay(quant::WeightFormat::kStored);
}

}  // namespace
}  // namespace hydrant::draft::head_stack_test
