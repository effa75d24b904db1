// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/test_util/packed.h"
#include "kernels/test_util/test_util.h"

namespace hydrant::kernels::matmul_test {
namespace {

// A weight [O, I] at an odd address, its rows `gap` elements apart; the gaps hold NaN, which must never be used.
struct TestWeight {
  std::vector<uint8_t> bytes;
  Weight weight;

  TestWeight(DType dtype, int64_t outputs, int64_t inputs, int64_t gap, uint32_t seed) {
    const auto size = static_cast<int64_t>(SizeOf(dtype));
    const int64_t stride = inputs + gap;
    bytes.resize(static_cast<size_t>(1 + outputs * stride * size));
    const std::vector<float> values = RandomFloats(outputs * inputs, seed);
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < stride; ++i) {
        const float value = i < inputs ? values[static_cast<size_t>(o * inputs + i)] : std::nanf("");
        StoreAs(dtype, value, bytes.data() + 1 + (o * stride + i) * size);
      }
    }
    weight.data = bytes.data() + 1;
    weight.dtype = dtype;
    weight.outputs = outputs;
    weight.inputs = inputs;
    weight.row_stride = stride;
  }

  float At(int64_t o, int64_t i) const {
    return LoadAs(weight.dtype, weight.data + static_cast<size_t>(o * weight.row_stride + i) * SizeOf(weight.dtype));
  }
};

// The order of docs/algorithms/order_of_additions.md, written out.
float InOrder(const float* x, const TestWeight& weight, int64_t o) {
  const int64_t inputs = weight.weight.inputs, slice = (inputs + 7) / 8;
  float sum[8] = {};
  for (int64_t i = 0; i < inputs; ++i) sum[i / slice] = std::fma(x[i], weight.At(o, i), sum[i / slice]);
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

void CheckAgainstDouble(const Matrix& x, const TestWeight& weight, const std::vector<float>& bias, const Matrix& out) {
  const int64_t inputs = weight.weight.inputs;
  // Each product and sum is rounded once in a chain of I / 8, then three times in the tree, once for the bias.
  const double roundings = static_cast<double>(inputs + 7) / 8 + 4;
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t o = 0; o < weight.weight.outputs; ++o) {
      double sum = bias[static_cast<size_t>(o)], magnitude = std::abs(sum);
      for (int64_t i = 0; i < inputs; ++i) {
        const double product = static_cast<double>(x.row(r)[i]) * static_cast<double>(weight.At(o, i));
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(static_cast<double>(out.row(r)[o]), sum, roundings * kEpsilon * magnitude) << r << ", " << o;
    }
  }
}

void CheckShape(DType dtype, int64_t rows, int64_t outputs, int64_t inputs) {
  const std::string shape = std::string(NameOf(dtype)) + " R=" + std::to_string(rows) +
                            " O=" + std::to_string(outputs) + " I=" + std::to_string(inputs);
  const TestWeight weight(dtype, outputs, inputs, 3, 1);
  const Matrix x = RandomMatrix(rows, inputs, 2);
  const std::vector<float> bias = RandomFloats(outputs, 3);
  Matrix expected(rows, outputs);
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    Matrix out(rows, outputs);
    Matmul(queue, x, weight.weight, bias, out);
    if (queue.table == &PortableKernels() && queue.pool->num_threads() == 1) {
      expected = std::move(out);
      CheckAgainstDouble(x, weight, bias, expected);
      return;
    }
    ExpectSameBits(out, expected, shape + " " + name);
  });
}

TEST(MatmulTest, EveryTargetComputesTheSameBitsOverAwkwardSizes) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t inputs : {1, 7, 8, 9, 20, 64, 96, 112, 704}) {
      for (const int64_t outputs : {1, 3, 16, 37}) {
        for (const int64_t rows : {0, 1, 2, 3, 5, 15, 16, 17, 33}) {
          CheckShape(dtype, rows, outputs, inputs);
          if (HasFatalFailure()) return;
        }
      }
    }
    for (const int64_t rows : {4, 8, 12, 31, 32, 63, 64, 65, 100, 129}) CheckShape(dtype, rows, 19, 132);
    for (const int64_t rows : {6, 7, 8, 9, 10, 11, 24}) CheckShape(dtype, rows, 37, 1001);  // too long for L1
    CheckShape(dtype, 3, 6, 4096 + 72);
  }
}

TEST(MatmulTest, TheOrderOfAdditionsIsTheWrittenOne) {
  for (const int64_t inputs : {1, 8, 9, 20, 64, 97, 704}) {
    const TestWeight weight(DType::kBF16, 5, inputs, 0, 4);
    const Matrix x = RandomMatrix(3, inputs, 5);
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix out(3, 5);
      Matmul(queue, x, weight.weight, {}, out);
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t o = 0; o < 5; ++o) EXPECT_EQ(out.row(r)[o], InOrder(x.row(r), weight, o)) << name << inputs;
      }
    });
  }
}

TEST(MatmulTest, ARowDoesNotDependOnTheOthers) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TestWeight weight(dtype, 35, 176, 0, 6);
    const Matrix x = RandomMatrix(100, 176, 7);
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix all(100, 35);
      Matmul(queue, x, weight.weight, {}, all);
      for (const int64_t begin : {0, 1, 63, 64, 99}) {
        for (const int64_t rows : {1, 2, 7, 16, 24}) {
          if (begin + rows > 100) continue;
          Matrix some(rows, 35);
          Matmul(queue, ConstRows(x.row(begin), rows, 176, x.stride()), weight.weight, {}, some);
          ExpectSameBits(some, ConstRows(all.row(begin), rows, 35, all.stride()), name);
        }
      }
    });
  }
}

TEST(MatmulTest, AddsToTheOutputAfterTheBias) {
  const TestWeight weight(DType::kBF16, 21, 40, 0, 8);
  const Matrix x = RandomMatrix(18, 40, 9), start = RandomMatrix(18, 21, 10);
  const std::vector<float> bias = RandomFloats(21, 11);
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    for (const bool with_bias : {false, true}) {
      Matrix out = MatrixOf(18, 21, RandomFloats(18 * 21, 10));
      Matmul(queue, x, weight.weight, with_bias ? std::span<const float>(bias) : std::span<const float>{}, out,
             MatmulMode::kAdd);
      for (int64_t r = 0; r < 18; ++r) {
        for (int64_t o = 0; o < 21; ++o) {
          const float product = InOrder(x.row(r), weight, o);
          const float value = with_bias ? product + bias[static_cast<size_t>(o)] : product;
          ASSERT_EQ(out.row(r)[o], start.row(r)[o] + value) << name;
        }
      }
    }
  });
}

TEST(MatmulTest, ColumnSlicesAreTheSameWeights) {
  const TestWeight weight(DType::kF16, 9, 60, 0, 12);
  const Matrix x = RandomMatrix(4, 60, 13);
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    const Weight part = weight.weight.Columns(13, 31);
    EXPECT_EQ(part.inputs, 31);
    Matrix out(4, 9), expected(4, 9);
    Matmul(queue, ConstRows(x.data() + 13, 4, 31, x.stride()), part, {}, out);
    TestWeight copy(DType::kF16, 9, 31, 0, 1);
    for (int64_t o = 0; o < 9; ++o) {
      for (int64_t i = 0; i < 31; ++i)
        StoreAs(DType::kF16, weight.At(o, 13 + i), copy.bytes.data() + 1 + 2 * (o * 31 + i));
    }
    Matmul(queue, ConstRows(x.data() + 13, 4, 31, x.stride()), copy.weight, {}, expected);
    ExpectSameBits(out, expected, name);
  });
}

// Infinities, NaN, subnormals and products that vanish: the zeros that pad a slice may not change a sign or make a NaN.
TEST(MatmulTest, SpecialValuesAreTheSameOnEveryTarget) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0F,      -0.0F,         1e-30F, -1e-30F,   1e-40F, infinity,
                           -infinity, std::nanf(""), 3e38F,  -65504.0F, 6e-8F};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t inputs : {1, 5, 12, 20, 64, 72}) {
      for (uint32_t seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        TestWeight weight(dtype, 7, inputs, 0, seed);
        std::vector<float> values(static_cast<size_t>(17 * inputs));
        const uint32_t kinds = seed < 10 ? 5 : 11;  // finite ones only in half of the cases
        for (float& value : values) value = special[random() % kinds];
        for (int64_t e = 0; e < 7 * inputs; ++e) {
          StoreAs(dtype, special[random() % kinds], weight.bytes.data() + 1 + static_cast<size_t>(e) * SizeOf(dtype));
        }
        const Matrix x = MatrixOf(17, inputs, values);
        Matrix expected(17, 7);
        Queue portable{nullptr, &PortableKernels()};
        base::ThreadPool one(1, false);
        portable.pool = &one;
        Matmul(portable, x, weight.weight, {}, expected);
        for (const KernelTable* table : AvailableKernels()) {
          Queue queue{&one, table};
          Matrix out(17, 7);
          Matmul(queue, x, weight.weight, {}, out);
          ExpectSameBits(out, expected, std::string(table->name) + " I=" + std::to_string(inputs));
        }
      }
    }
  }
}

// Every product rounds to -0. A slice that is padded with zeros ends in +0, on every target.
TEST(MatmulTest, PaddingGivesTheSameZeroOnEveryTarget) {
  for (const int64_t inputs : {8, 15, 16, 20, 64, 127}) {
    TestWeight weight(DType::kF32, 5, inputs, 0, 1);
    for (int64_t e = 0; e < 5 * inputs; ++e) StoreAs(DType::kF32, -1e-30F, weight.bytes.data() + 1 + 4 * e);
    const Matrix x = MatrixOf(18, inputs, std::vector<float>(static_cast<size_t>(18 * inputs), 1e-30F));
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix out(18, 5);
      Matmul(queue, x, weight.weight, {}, out);
      for (int64_t r = 0; r < 18; ++r) {
        for (int64_t o = 0; o < 5; ++o)
          ASSERT_EQ(std::signbit(out.row(r)[o]), inputs % 64 == 0) << name << " " << inputs;
      }
    });
  }
}

TEST(MatmulTest, WeightOfATensor) {
  const std::vector<float> values = RandomFloats(12, 20);
  TensorView tensor;
  tensor.data = reinterpret_cast<const uint8_t*>(values.data());
  tensor.shape = {3, 4};
  const Weight weight = Weight::Of(tensor);
  EXPECT_EQ(weight.outputs, 3);
  EXPECT_EQ(weight.inputs, 4);
  EXPECT_EQ(weight.row_stride, 4);
  EXPECT_EQ(weight.dtype, DType::kF32);
}

// Large enough for ForItemsShared; the panels of the two weights are one row.
TEST(MatmulTest, InARegionThreadsShareLongProducts) {
  const int64_t rows = 8, inputs = 1024;
  const int64_t operations = kPanelOutputs * (rows + 2) * inputs / 4;
  ASSERT_GE((700 / kPanelOutputs + 400 / kPanelOutputs) * operations, kOperationsWorthSharing);
  const std::vector<float> floats = RandomFloats(rows * inputs, 9);
  const ConstRows x(floats.data(), rows, inputs, inputs);
  for (const KernelTable* table : AvailableKernels()) {
    const PackedType type = TypeIn(table->layout(), true);
    const TestPackedMatrix first(type, 700, inputs, 7), second(type, 400, inputs, 8);
    const Weight weights[] = {Weight::Of(first.matrix()), Weight::Of(second.matrix())};
    std::vector<float> expected, found;
    for (const int threads : {1, 3}) {
      base::ThreadPool pool(threads, false);
      Queue queue{&pool, table};
      MatmulInput input;
      input.Reserve(*table, weights[0].kind, rows, inputs);
      std::vector<float>& out = threads == 1 ? expected : found;
      out.assign(static_cast<size_t>(rows * 1100), 0.0F);
      const MatmulJob jobs[] = {{&weights[0], {}, Rows(out.data(), rows, 700, 1100)},
                                {&weights[1], {}, Rows(out.data() + 700, rows, 400, 1100), MatmulMode::kAdd}};
      Region(queue, [&](Queue& own) {
        input.Load(own, x);
        Matmul(own, input, jobs);
      });
    }
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), SameBits)) << table->name;
  }
}

// Rows that go in several chunks, and weights in several groups of panels.
TEST(MatmulTest, ARowOfManyIsTheRowAlone) {
  const int64_t rows = 131, inputs = 8192, outputs = 100;
  const std::vector<float> floats = RandomFloats(rows * inputs, 11);
  base::ThreadPool pool(2, false);
  for (const KernelTable* table : AvailableKernels()) {
    Queue queue{&pool, table};
    const TestPackedMatrix matrix(TypeIn(table->layout(), false), outputs, inputs, 12);
    for (const bool two_planes : {false, true}) {
      const Weight weight = Weight::Of(matrix.matrix(), two_planes);
      std::vector<float> together(static_cast<size_t>(rows * outputs)), alone(static_cast<size_t>(outputs));
      Matmul(queue, ConstRows(floats.data(), rows, inputs, inputs), weight, {},
             Rows(together.data(), rows, outputs, outputs));
      for (const int64_t r : {0, 15, 63, 64, 127, 128, 130}) {
        Matmul(queue, ConstRows(floats.data() + r * inputs, 1, inputs, inputs), weight, {},
               Rows(alone.data(), 1, outputs, outputs));
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + r * outputs, SameBits))
            << table->name << " row " << r << (two_planes ? " of two planes" : "");
      }
    }
  }
}

// Outputs that end inside a panel and go in several parts, the last one shorter.
void CheckSiluMul(const Weight& gate, const Weight& up, int64_t rows, const KernelTable& table) {
  const int64_t inputs = gate.inputs, outputs = gate.outputs;
  const std::vector<float> bias = RandomFloats(outputs, 3);
  const Matrix x = RandomMatrix(rows, inputs, 4);
  Matrix gates(rows, outputs), ups(rows, outputs), expected(rows, outputs), found(rows, outputs);
  for (const int threads : {1, 3}) {
    base::ThreadPool pool(threads, false);
    Queue queue{&pool, &table};
    MatmulInput input;
    input.Reserve(table, gate.kind, rows, inputs);
    Region(queue, [&](Queue& own) {
      input.Load(own, x);
      const MatmulJob jobs[] = {{&gate, bias, gates}, {&up, {}, ups}};
      Matmul(own, input, jobs);
      SiluMul(own, gates, ups, expected);
      // A job's mode is of its own output, which is not written here.
      MatmulSiluMul(own, input, {&gate, bias, {}, MatmulMode::kAdd}, {&up, {}, {}, MatmulMode::kAdd}, found);
    });
    ExpectSameBits(found, expected, std::string(table.name) + " R=" + std::to_string(rows));
  }
}

TEST(MatmulTest, SiluMulOfTwoProductsGivesTheBitsOfThreeOps) {
  const int64_t outputs = 1100, inputs = 300;
  const TestWeight float_gate(DType::kBF16, outputs, inputs, 0, 1), float_up(DType::kBF16, outputs, inputs, 0, 2);
  for (const KernelTable* table : AvailableKernels()) {
    const PackedType four = TypeIn(table->layout(), true), eight = TypeIn(table->layout(), false);
    const TestPackedMatrix gate(four, outputs, inputs, 5), up(eight, outputs, inputs, 6);
    for (const int64_t rows : {1, 17, 130}) {
      CheckSiluMul(float_gate.weight, float_up.weight, rows, *table);
      CheckSiluMul(Weight::Of(gate.matrix()), Weight::Of(up.matrix()), rows, *table);
      CheckSiluMul(Weight::Of(up.matrix(), true), Weight::Of(gate.matrix(), true), rows, *table);
    }
  }
}

constexpr int64_t kParents[] = {1, 0, 1};

// Some columns of each row of the second level = those of its parent.
void StartFromParents(const Matrix& above, int64_t column, int64_t columns, Matrix& sums) {
  for (int64_t r = 0; r < 3; ++r) std::copy_n(above.row(kParents[r]) + column, columns, sums.row(r) + column);
}

// Sums of three inputs, two rows, two and three: the last start from a row of the sum of the others.
struct InOrderCase {
  const std::vector<Weight>& weights;  // two for each input
  Matrix x[3];
  std::vector<float> bias;

  explicit InOrderCase(const std::vector<Weight>& w) : weights(w), bias(RandomFloats(w[0].outputs, 24)) {
    for (uint32_t g = 0; g < 3; ++g) x[g] = RandomMatrix(g < 2 ? 2 : 3, w[0].inputs, 21 + g);
  }
  // One product after the other.
  Matrix Expected(Queue& queue, size_t j) const {
    Matrix above(2, weights[j].outputs), sums(3, weights[j].outputs);
    Matmul(queue, x[0], weights[j], j == 0 ? bias : std::vector<float>(), above);
    Matmul(queue, x[1], weights[2 + j], {}, above, MatmulMode::kAdd);
    StartFromParents(above, 0, above.cols(), sums);
    Matmul(queue, x[2], weights[4 + j], {}, sums, MatmulMode::kAdd);
    return sums;
  }
  void Check(Queue& queue, const std::string& name) const {
    Matrix above[2], sums[2];
    for (size_t j = 0; j < 2; ++j) {
      above[j].Resize(2, weights[j].outputs);
      sums[j].Resize(3, weights[j].outputs);
    }
    MatmulInput ready[3];
    std::vector<MatmulJob> jobs;
    for (size_t g = 0; g < 3; ++g) {
      ready[g].Reserve(*queue.table, weights[0].kind, x[g].rows(), x[g].cols());
      ready[g].Load(queue, x[g]);
      for (size_t j = 0; j < 2; ++j)
        jobs.push_back({&weights[2 * g + j], {}, g < 2 ? above[j] : sums[j], MatmulMode::kAdd});
    }
    jobs[0].mode = jobs[1].mode = MatmulMode::kStore;
    jobs[0].bias = bias;
    const std::span<const MatmulJob> all(jobs);
    const InputJobs groups[] = {{&ready[0], all.first(2)}, {&ready[1], all.subspan(2, 2)}, {&ready[2], all.last(2)}};
    Region(queue, [&](Queue& own) {
      MatmulInOrder(own, groups, [&](size_t group, size_t j, int64_t column, int64_t columns) {
        if (group == 2) StartFromParents(above[j], column, columns, sums[j]);
      });
    });
    for (size_t j = 0; j < 2; ++j) ExpectSameBits(sums[j], Expected(queue, j), name + " job " + std::to_string(j));
  }
};

void CheckInOrder(const std::vector<Weight>& weights) {
  const InOrderCase in_order(weights);
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    const bool reads = std::ranges::all_of(weights, [&](const Weight& weight) {
      return weight.kind == InputKind::kF32 || queue.table->Reads(weight.packed.type);
    });
    if (reads) in_order.Check(queue, name);
  });
}

TEST(MatmulTest, InOrderGivesTheBitsOfOneProductAfterTheOther) {
  for (const int64_t width : {16, 37, 2000}) {  // of the even ones; threads share out the panels of the widest
    std::vector<TestWeight> floats;
    std::vector<Weight> weights;
    for (uint32_t i = 0; i < 6; ++i) floats.emplace_back(DType::kBF16, i % 2 == 0 ? width : 100, 70, 3, i);
    for (const TestWeight& one : floats) weights.push_back(one.weight);
    CheckInOrder(weights);
    for (const PackedType type : {PackedType::kW8, PackedType::kW4, PackedType::kQuads, PackedType::kOctets}) {
      std::vector<std::unique_ptr<TestPackedMatrix>> packed;
      weights.clear();
      for (uint32_t i = 0; i < 6; ++i) {
        packed.push_back(std::make_unique<TestPackedMatrix>(type, i % 2 == 0 ? width : 100, 300, i));
        weights.push_back(Weight::Of(packed.back()->matrix()));
      }
      CheckInOrder(weights);
    }
  }
}

}  // namespace
}  // namespace hydrant::kernels::matmul_test
