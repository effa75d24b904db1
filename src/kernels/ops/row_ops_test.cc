// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/test_util/test_util.h"

namespace hydrant::kernels::row_ops_test {
namespace {

const std::vector<int64_t> kSizes = {1, 7, 8, 9, 15, 16, 17, 20, 64, 96, 112, 704};

// Distance in units of f32's last place at `exact`.
double Ulps(float got, double exact) {
  const auto rounded = static_cast<float>(exact);
  const float next = std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity());
  return std::abs(static_cast<double>(got) - exact) / static_cast<double>(next - std::abs(rounded));
}

TEST(RowOpsTest, RmsNorm) {
  for (const int64_t cols : kSizes) {
    const Matrix x = RandomMatrix(5, cols, 1);
    const std::vector<float> weight = RandomFloats(cols, 2);
    Matrix expected(5, cols);
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix out(5, cols);
      RmsNorm(queue, x, weight, 1e-5F, out);
      Matrix in_place = MatrixOf(5, cols, RandomFloats(5 * cols, 1));
      RmsNorm(queue, in_place, weight, 1e-5F, in_place);
      ExpectSameBits(in_place, out, name);
      if (queue.table != &PortableKernels()) return ExpectSameBits(out, expected, name);
      for (int64_t r = 0; r < 5; ++r) {
        double squares = 0;
        for (int64_t c = 0; c < cols; ++c) squares += std::pow(static_cast<double>(x.row(r)[c]), 2);
        const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
        // The sum rounds cols / 16 + 4 times (half of it counts under the root), then six roundings follow.
        const double tolerance = (static_cast<double>(cols) / 32 + 8) * kEpsilon;
        for (int64_t c = 0; c < cols; ++c) {
          const double exact =
              static_cast<double>(x.row(r)[c]) * scale * static_cast<double>(weight[static_cast<size_t>(c)]);
          ASSERT_NEAR(static_cast<double>(out.row(r)[c]), exact, tolerance * std::abs(exact)) << name << cols;
        }
      }
      expected = std::move(out);
    });
  }
}

TEST(RowOpsTest, RmsNormSumsBy16PartialSums) {
  const Matrix x = RandomMatrix(1, 41, 3);
  const std::vector<float> ones(41, 1.0F);
  float lanes[16] = {};
  for (int i = 0; i < 41; ++i) lanes[i % 16] = std::fma(x.row(0)[i], x.row(0)[i], lanes[i % 16]);
  for (int width = 8; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  const float scale = 1.0F / std::sqrt(lanes[0] / 41.0F + 1e-6F);
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    Matrix out(1, 41);
    RmsNorm(queue, x, ones, 1e-6F, out);
    for (int i = 0; i < 41; ++i) EXPECT_EQ(out.row(0)[i], x.row(0)[i] * scale) << name;
  });
}

TEST(RowOpsTest, RotateHeadsNormsEachHeadFirst) {
  for (const int64_t head_dim : {8, 12, 24, 64, 80, 128}) {
    const std::vector<float> weight = RandomFloats(head_dim, 4), key_weight = RandomFloats(head_dim, 44);
    const auto half = static_cast<size_t>(3 * head_dim / 2);
    const Matrix ones = MatrixOf(3, head_dim / 2, std::vector<float>(half, 1.0F));
    const Matrix zeros = MatrixOf(3, head_dim / 2, std::vector<float>(half, 0.0F));
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix x = RandomMatrix(3, 2 * head_dim, 5);
      const Matrix before = RandomMatrix(3, 2 * head_dim, 5);
      const Rows q(x.data(), 3, head_dim, x.stride()), k(x.data() + head_dim, 3, head_dim, x.stride());
      RotateHeads(queue, q, k, head_dim, {{weight, key_weight, 1e-6F}, ones, zeros});
      for (int64_t h = 0; h < 2; ++h) {
        Matrix expected(3, head_dim);
        RmsNorm(queue, ConstRows(before.data() + h * head_dim, 3, head_dim, before.stride()),
                h == 0 ? weight : key_weight, 1e-6F, expected);
        ExpectSameBits(ConstRows(x.data() + h * head_dim, 3, head_dim, x.stride()), expected, name);
      }
    });
  }
}

TEST(RowOpsTest, RopeTableIsAccurate) {
  std::vector<int32_t> positions = {0, 1, 2, 3, 31, 32, 100, 511, 4095, 32767, 131071, 1048575};
  for (const int64_t half : {1, 4, 6, 12, 32, 40, 64}) {
    std::vector<float> inv_freq;
    for (int64_t i = 0; i < half; ++i) {
      inv_freq.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half))));
    }
    const auto rows = static_cast<int64_t>(positions.size());
    Matrix expected_cos(rows, half), expected_sin(rows, half);
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix cos(rows, half), sin(rows, half);
      RopeTable(queue, positions, inv_freq, cos, sin);
      if (queue.table != &PortableKernels()) {
        ExpectSameBits(cos, expected_cos, name);
        ExpectSameBits(sin, expected_sin, name);
        return;
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(positions[static_cast<size_t>(r)]) * inv_freq[static_cast<size_t>(i)];
          ASSERT_LE(Ulps(cos.row(r)[i], std::cos(static_cast<double>(angle))), 0.51) << angle;
          ASSERT_LE(Ulps(sin.row(r)[i], std::sin(static_cast<double>(angle))), 0.51) << angle;
        }
      }
      expected_cos = std::move(cos);
      expected_sin = std::move(sin);
    });
  }
}

TEST(RowOpsTest, RotateHeadsRotatesHalves) {
  for (const int64_t head_dim : {2, 8, 12, 24, 64, 80, 128}) {
    const int64_t half = head_dim / 2;
    const Matrix cos = RandomMatrix(5, half, 6), sin = RandomMatrix(5, half, 7),
                 before = RandomMatrix(5, 3 * head_dim, 8);
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix x = RandomMatrix(5, 3 * head_dim, 8);
      const Rows q(x.data(), 5, 2 * head_dim, x.stride()), k(x.data() + 2 * head_dim, 5, head_dim, x.stride());
      RotateHeads(queue, q, k, head_dim, {{}, cos, sin});
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t h = 0; h < 3; ++h) {
          for (int64_t i = 0; i < half; ++i) {
            const float a = before.row(r)[h * head_dim + i], b = before.row(r)[h * head_dim + half + i];
            const float c = cos.row(r)[i], s = sin.row(r)[i];
            ASSERT_EQ(x.row(r)[h * head_dim + i], a * c - b * s) << name;
            ASSERT_EQ(x.row(r)[h * head_dim + half + i], b * c + a * s) << name;
          }
        }
      }
    });
  }
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

TEST(RowOpsTest, SiluMulAndResidualSilu) {
  for (const int64_t cols : kSizes) {
    const Matrix gate = RandomMatrix(4, cols, 9, 4.0F), up = RandomMatrix(4, cols, 10);
    Matrix expected_mul(4, cols), expected_residual(4, cols);
    ForEveryQueue([&](Queue& queue, const std::string& name) {
      Matrix mul(4, cols), residual(4, cols);
      SiluMul(queue, gate, up, mul);
      ResidualSilu(queue, up, gate, residual);
      Matrix in_place = RandomMatrix(4, cols, 9, 4.0F);
      SiluMul(queue, in_place, up, in_place);
      ExpectSameBits(in_place, mul, name);
      in_place = RandomMatrix(4, cols, 9, 4.0F);
      ResidualSilu(queue, up, in_place, in_place);
      ExpectSameBits(in_place, residual, name);
      if (queue.table != &PortableKernels()) {
        ExpectSameBits(mul, expected_mul, name);
        ExpectSameBits(residual, expected_residual, name);
        return;
      }
      for (int64_t r = 0; r < 4; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const double silu = Silu(static_cast<double>(gate.row(r)[c])), other = static_cast<double>(up.row(r)[c]);
          // exp 2 ulp (4 epsilon), then sum, quotient and product.
          ASSERT_NEAR(static_cast<double>(mul.row(r)[c]), silu * other, 7 * kEpsilon * std::abs(silu * other));
          ASSERT_NEAR(static_cast<double>(residual.row(r)[c]), other + silu,
                      7 * kEpsilon * (std::abs(silu) + std::abs(other)));
        }
      }
      expected_mul = std::move(mul);
      expected_residual = std::move(residual);
    });
  }
}

TEST(RowOpsTest, BiasGelu) {
  std::vector<float> values = {0.0F, -0.0F, 1e-30F, -1e-30F, 13.3F, -13.3F, 100.0F, -100.0F, 1e20F, -1e20F};
  for (int i = -6000; i < 6000; ++i) values.push_back(static_cast<float>(i) * 0.00113F);
  const auto cols = static_cast<int64_t>(values.size());
  const std::vector<float> bias = RandomFloats(cols, 12, 0.1F);
  const Matrix x = MatrixOf(1, cols, values);
  Matrix expected(1, cols);
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    Matrix out(1, cols);
    BiasGelu(queue, x, bias, out);
    Matrix in_place = MatrixOf(1, cols, values);
    BiasGelu(queue, in_place, bias, in_place);
    ExpectSameBits(in_place, out, name);
    if (queue.table != &PortableKernels()) return ExpectSameBits(out, expected, name);
    for (int64_t c = 0; c < cols; ++c) {
      const auto v = static_cast<double>(values[static_cast<size_t>(c)] + bias[static_cast<size_t>(c)]);
      const double exact = 0.5 * v * std::erfc(-v / std::sqrt(2.0));
      // Half from the formula, half from roundings.
      ASSERT_NEAR(static_cast<double>(out.row(0)[c]), exact, 2e-7 * std::abs(v) + 2 * kEpsilon * std::abs(exact)) << v;
    }
    expected = std::move(out);
  });
}

// silu(-x) * -1 = x / (1 + exp(x)) shows exp through one sum and one quotient.
TEST(RowOpsTest, ExpIsAccurateAndHandlesExtremes) {
  std::vector<float> values;
  for (int i = -12600; i < 12600; ++i) values.push_back(static_cast<float>(i) * 0.00713F);
  // Where 2^k is no float, nothing that was made of it may show.
  for (int i = 0; i < 2000; ++i) values.push_back(-88.0F - 0.17F * static_cast<float>(i));
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {0.0F, -0.0F, 88.0F, 88.72F, 88.73F, 89.0F, 1e10F, 3e38F, -87.3F, -88.0F, -104.0F, -1e10F,
                        -3e38F, infinity, -infinity, std::nanf(""), 1e-40F, -1e-40F}) {
    values.push_back(x);
  }
  const auto cols = static_cast<int64_t>(values.size());
  const Matrix gate = MatrixOf(1, cols, values), ones = MatrixOf(1, cols, std::vector<float>(values.size(), 1.0F));
  Matrix expected(1, cols);
  ForEveryQueue([&](Queue& queue, const std::string& name) {
    Matrix out(1, cols);
    SiluMul(queue, gate, ones, out);
    if (queue.table != &PortableKernels()) return ExpectSameBits(out, expected, name);
    for (int64_t c = 0; c < cols; ++c) {
      const float x = values[static_cast<size_t>(c)], got = out.row(0)[c];
      if (std::isnan(x) || x == -infinity) {
        EXPECT_TRUE(std::isnan(got)) << x;  // -infinity / infinity, as in every framework
      } else if (x < -87.0F) {
        EXPECT_LE(std::abs(got), 1.5e-36F) << x;  // exp(-x) is near infinity or is it
      } else if (x == infinity) {
        EXPECT_EQ(got, infinity);
      } else {
        const double exact = Silu(static_cast<double>(x));
        EXPECT_NEAR(static_cast<double>(got), exact, 6 * kEpsilon * std::abs(exact)) << x;
      }
    }
    expected = std::move(out);
  });
}

TEST(RowOpsTest, ExpSumsLeaveNanAndInfinityOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t n : {1, 15, 16, 17, 40, 63, 64, 65, 112, 128, 200}) {
    std::vector<float> x = RandomFloats(n, 21, 9.0F);
    for (size_t i = 2; i < x.size(); i += 5) x[i] = i % 2 == 0 ? std::nanf("") : -infinity;
    for (float& value : x) value += 200;  // beyond what exp itself can hold
    std::vector<float> expected;
    for (const KernelTable* table : AvailableKernels()) {
      constexpr auto kScores = static_cast<size_t>(kExpSumScores);
      const size_t parts = (x.size() + kScores - 1) / kScores;
      std::vector<ExpSum> sums(parts + 1, ExpSum{-1, -1});
      table->exp_sums(x.data(), n, sums.data());
      EXPECT_EQ(sums.back().largest, -1) << "written behind the end";
      std::vector<float> flat;
      for (size_t part = 0; part < parts; ++part) {
        float largest = -infinity;
        double sum = 0;
        const size_t end = std::min(x.size(), kScores * (part + 1));
        for (size_t i = kScores * part; i < end; ++i) largest = x[i] > largest ? x[i] : largest;
        for (size_t i = kScores * part; i < end; ++i) {
          if (x[i] > -infinity) sum += std::exp(static_cast<double>(x[i] - largest));
        }
        EXPECT_EQ(sums[part].largest, largest) << table->name;
        EXPECT_NEAR(static_cast<double>(sums[part].sum), sum, 8 * kEpsilon * sum) << table->name << n;
        flat.insert(flat.end(), {sums[part].largest, sums[part].sum});
      }
      if (expected.empty()) expected = flat;
      ExpectSameBits(MatrixOf(1, static_cast<int64_t>(flat.size()), flat),
                     MatrixOf(1, static_cast<int64_t>(flat.size()), expected), table->name);
    }
  }
}

TEST(RowOpsTest, NoRowsAreFine) {
  ForEveryQueue([&](Queue& queue, const std::string& /*name*/) {
    Matrix none(0, 33);
    SiluMul(queue, none, none, none);
    ResidualSilu(queue, none, none, none);
    BiasGelu(queue, none, std::vector<float>(33), none);
    RmsNorm(queue, none, std::vector<float>(33), 1e-5F, none);
  });
}

TEST(RowOpsTest, EmbedWidensRowsFromUnalignedTables) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t width : {1, 7, 64, 96}) {
      const std::vector<float> values = RandomFloats(11 * width, 13);
      std::vector<uint8_t> bytes(1 + values.size() * SizeOf(dtype));
      for (size_t i = 0; i < values.size(); ++i) StoreAs(dtype, values[i], bytes.data() + 1 + i * SizeOf(dtype));
      TensorView table;
      table.data = bytes.data() + 1;
      table.dtype = dtype;
      table.shape = {11, width};
      const std::vector<int32_t> tokens = {10, 0, 3, 3, 7};
      ForEveryQueue([&](Queue& queue, const std::string& name) {
        Matrix out(5, width);
        Embed(queue, table, tokens, out);
        for (int64_t r = 0; r < 5; ++r) {
          for (int64_t c = 0; c < width; ++c) {
            const auto e = static_cast<size_t>(tokens[static_cast<size_t>(r)] * width + c);
            ASSERT_EQ(out.row(r)[c], LoadAs(dtype, table.data + e * SizeOf(dtype))) << name;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace hydrant::kernels::row_ops_test
