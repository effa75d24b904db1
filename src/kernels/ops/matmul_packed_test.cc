// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/matmul.h"
#include "kernels/ops/ops.h"
#include "kernels/test_util/packed.h"
#include "kernels/test_util/test_util.h"

namespace hydrant::kernels::matmul_packed_test {
namespace {

struct Options {
  bool bias = false, add = false;
  int64_t gap = 0;           // out_stride - O
  int64_t range_panels = 0;  // panels per call, 0 = all
  PrefetchList* later = nullptr;
};

constexpr PackedType kTypes[] = {PackedType::kW8, PackedType::kW4, PackedType::kQuads, PackedType::kOctets};
constexpr float kUntouched = 12345.5F;

// [rows][O + gap], as `table` computes it.
std::vector<float> Product(const KernelTable& table, const TestPackedMatrix& weight, TestCodes& codes,
                           const Options& options) {
  const PackedMatrix& matrix = weight.matrix();
  codes.PackFor(table);
  const int64_t stride = matrix.outputs + options.gap;
  const int64_t size = (codes.rows() - 1) * stride + matrix.outputs;
  GuardedArray<float> out(size), bias(matrix.outputs);
  for (int64_t i = 0; i < size; ++i) {
    out[i] = options.add && i % stride < matrix.outputs ? 0.25F * static_cast<float>(i % 977) : kUntouched;
  }
  for (int64_t o = 0; o < matrix.outputs; ++o) bias[o] = 0.125F * static_cast<float>(o % 31) - 1.7F;
  PackedMatmulArgs args = codes.Args(matrix);
  args.bias = options.bias ? bias.data() : nullptr;
  args.out = out.data();
  args.out_stride = stride;
  args.add = options.add;
  args.later = options.later;
  const int64_t panels = matrix.num_panels(), each = options.range_panels == 0 ? panels : options.range_panels;
  for (int64_t p = 0; p < panels; p += each) table.packed_matmul(args, p, std::min(p + each, panels));
  return {out.data(), out.data() + size};
}

void CheckTargets(PackedType type, int64_t rows, int64_t outputs, int64_t inputs, bool two_planes,
                  const Options& options = {}, Values values = Values::kRandom) {
  const TestPackedMatrix weight(type, outputs, inputs, 1, values);
  TestCodes codes(two_planes ? 2 * rows : rows, inputs, two_planes, 2, values);
  const std::vector<float> expected = Product(PortableKernels(), weight, codes, options);
  for (const KernelTable* table : PackedKernels()) {
    if (table == &PortableKernels()) continue;
    if (!table->Reads(type)) continue;
    const std::vector<float> out = Product(*table, weight, codes, options);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(SameBits(out[i], expected[i]))
          << table->name << " type " << static_cast<int>(type) << " R=" << rows << " O=" << outputs << " I=" << inputs
          << (two_planes ? " two planes" : "") << ": value " << i << " is " << out[i] << ", expected " << expected[i];
    }
  }
}

TEST(PackedMatmulTest, ThePortableKernelComputesTheDefinition) {
  for (const PackedType type : kTypes) {
    for (const bool two_planes : {false, true}) {
      const TestPackedMatrix weight(type, 21, 200, 3);
      TestCodes codes(6, 200, two_planes, 4);
      const std::vector<float> out = Product(PortableKernels(), weight, codes, {});
      for (int64_t r = 0; r < codes.rows(); ++r) {
        for (int64_t o = 0; o < 21; ++o) {
          int64_t sum = 0;
          for (int64_t i = 0; i < 200; ++i) {
            const int64_t code = two_planes ? 256 * codes.At(2 * r, i) + codes.At(2 * r + 1, i) : codes.At(r, i);
            sum += code * weight.At(o, i);
          }
          const float value = static_cast<float>(sum) * (weight.row_scale(o) * codes.scale(r));
          ASSERT_EQ(out[static_cast<size_t>(r * 21 + o)], value) << r << ", " << o;
        }
      }
    }
  }
}

TEST(PackedMatmulTest, EveryTargetComputesTheSameBitsForAnyNumberOfRows) {
  for (const PackedType type : kTypes) {
    for (int64_t rows = 1; rows <= 70; ++rows) {
      CheckTargets(type, rows, 21, 172, false);
      if (rows <= 64) CheckTargets(type, rows, 17, 129, true);
      if (HasFatalFailure()) return;
    }
    for (const int64_t rows : {96, 127, 128}) CheckTargets(type, rows, 33, 256, false);
  }
}

// A list to prefetch changes nothing but itself: pieces are taken one a panel after the wait, and no more than there
// are. They need not be memory at all. Whoever does not say that it fetches them may still take some.
void CheckPrefetchList(PackedType type, int64_t inputs) {
  const TestPackedMatrix weight(type, 16 * 9, inputs, 1);
  const std::vector<const uint8_t*> pieces(20, nullptr);
  for (const KernelTable* table : PackedKernels()) {
    if (!table->Reads(type)) continue;
    for (const int64_t rows : {1, 5, 6, 10, 11, 64}) {
      TestCodes codes(rows, inputs, false, 2);
      const std::vector<float> expected = Product(*table, weight, codes, {});
      for (const int64_t count : {0, 3, 20}) {
        PrefetchList later{pieces.data(), count, 2};
        const std::vector<float> out = Product(*table, weight, codes, {.range_panels = 5, .later = &later});
        ASSERT_TRUE(out == expected) << table->name << " R=" << rows;
        const int64_t taken = count - later.count, most = std::min<int64_t>(count, 7);
        if (table->fetches_lists) {
          const bool takes = type == PackedType::kOctets && rows >= kPrefetchRows;
          EXPECT_EQ(taken, takes ? most : 0) << table->name << " I=" << inputs << " R=" << rows;
        }
        EXPECT_LE(taken, most);
        EXPECT_EQ(later.pieces - pieces.data(), taken);
      }
    }
  }
}

TEST(PackedMatmulTest, APrefetchListIsTakenOnePieceAPanel) {
  for (const PackedType type : kTypes) {
    for (const int64_t inputs : {300, 1024}) CheckPrefetchList(type, inputs);
  }
}

TEST(PackedMatmulTest, EveryTargetComputesTheSameBitsForAnyNumberOfOutputs) {
  for (const PackedType type : kTypes) {
    for (int64_t outputs = 1; outputs <= 50; ++outputs) {
      for (const int64_t rows : {1, 3, 6, 8, 10}) CheckTargets(type, rows, outputs, 192, outputs % 2 == 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PackedMatmulTest, EveryTargetComputesTheSameBitsForAnyNumberOfInputs) {
  for (const PackedType type : kTypes) {
    for (const int64_t inputs : {1, 63, 64, 65, 127, 128, 129, 172, 256, 384, 1000, 4096}) {
      for (const int64_t rows : {1, 2, 4, 5, 7, 8, 13, 16}) CheckTargets(type, rows, 37, inputs, rows % 2 == 0);
      if (HasFatalFailure()) return;
    }
  }
}

// More inputs than few rows multiply at a time (AVX2: 8,192 of one row to 2,048 of four).
TEST(PackedMatmulTest, EveryTargetComputesTheSameBitsForManyInputsOfFewRows) {
  for (const PackedType type : kTypes) {
    for (const int64_t rows : {1, 2, 3, 4}) {
      CheckTargets(type, rows, 18, 8192 / rows + 130, false);
      CheckTargets(type, rows, 18, 3 * 8192 / rows, false);
      if (HasFatalFailure()) return;
    }
  }
}

// Four panels at a time of more inputs than lie in a cache (AVX2: some steps of each in turn).
TEST(PackedMatmulTest, EveryTargetComputesTheSameBitsForManyInputsOfManyOutputs) {
  for (const PackedType type : kTypes) {
    for (const int64_t inputs : {700, 800, 900, 1000, 1100, 4096}) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 32, 33}) {
        for (const int64_t outputs : {63, 64, 81, 130}) CheckTargets(type, rows, outputs, inputs, false);
        CheckTargets(type, rows, 145, inputs, rows <= 2, {true, true, 5, 0});
        CheckTargets(type, rows, 145, inputs, rows <= 2, {false, true, 0, 5});
        if (HasFatalFailure()) return;
      }
    }
    for (const int64_t rows : {1, 4, 7}) CheckTargets(type, rows, 70, 1000, false, {}, Values::kExtreme);
  }
}

TEST(PackedMatmulTest, BiasesSumsStridesAndRangesAreTheSameOnEveryTarget) {
  for (const PackedType type : kTypes) {
    for (const int64_t rows : {1, 4, 8, 11}) {
      for (const bool two_planes : {false, true}) {
        for (const bool bias : {false, true}) {
          for (const bool add : {false, true}) {
            CheckTargets(type, rows, 83, 300, two_planes, {bias, add, 5, 0});
            CheckTargets(type, rows, 83, 300, two_planes, {bias, add, 0, 1});
            CheckTargets(type, rows, 64, 300, two_planes, {bias, add, 3, 3});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// The largest sums that packed.h allows; on the way they leave 32 bits where weights keep their bias of 128.
TEST(PackedMatmulTest, SumsOfTheLargestMagnitudesAreExact) {
  for (const PackedType type : kTypes) {
    for (const bool two_planes : {false, true}) {
      for (const int64_t rows : {1, 3, 8}) {
        CheckTargets(type, rows, 18, 1000, two_planes, {}, Values::kExtreme);
        if (HasFatalFailure()) return;
      }
    }
  }
  TestCodes codes(2, kMaxPackedInputs, true, 2, Values::kLargest);
  const auto sum = static_cast<float>((127 * 256 - 128) * 127LL * kMaxPackedInputs);
  for (const PackedType type : {PackedType::kW8, PackedType::kQuads}) {
    const TestPackedMatrix weight(type, 16, kMaxPackedInputs, 1, Values::kLargest);
    for (const KernelTable* table : PackedKernels()) {
      if (!table->Reads(type)) continue;
      const std::vector<float> out = Product(*table, weight, codes, {});
      for (int64_t o = 0; o < 16; ++o) {
        EXPECT_EQ(out[static_cast<size_t>(o)], sum * (weight.row_scale(o) * codes.scale(0))) << table->name;
      }
    }
  }
}

TEST(PackedMatmulTest, ARowDoesNotDependOnTheOthers) {
  const TestPackedMatrix lines(PackedType::kW4, 40, 256, 5), octets(PackedType::kOctets, 40, 256, 5);
  TestCodes many(64, 256, false, 6);
  for (const KernelTable* table : AvailableKernels()) {
    const TestPackedMatrix& weight = table->reads_lines ? lines : octets;
    const std::vector<float> all = Product(*table, weight, many, {});
    for (const int64_t rows : {1, 2, 5, 8, 16, 33}) {
      TestCodes few(rows, 256, false, 6);  // the first rows of `many`
      const std::vector<float> out = Product(*table, weight, few, {});
      for (size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(SameBits(out[i], all[i])) << table->name << " R=" << rows;
    }
  }
}

TEST(PackedMatmulTest, PlansKeepAllRowsInBlocksThatTheContractAllows) {
  for (const KernelTable* table : AvailableKernels()) {
    for (int64_t rows = 0; rows <= kMaxCodeRows; ++rows) {
      int64_t sizes[kMaxCodeRows] = {};
      const int64_t num_blocks = table->plan_row_blocks(rows, sizes);
      int64_t total = 0;
      for (int64_t b = 0; b < num_blocks; ++b) {
        EXPECT_GT(sizes[b], 0) << table->name << " R=" << rows;
        if (table->quad_codes) {
          EXPECT_LE(sizes[b], 16) << table->name << " R=" << rows;
        }
        if (!table->reads_lines) {
          EXPECT_LE(sizes[b], 10) << table->name << " R=" << rows;
        }
        total += sizes[b];
      }
      EXPECT_EQ(total, rows) << table->name;
    }
  }
}

// What quantize_row leaves, the codes as a plain row.
struct Quantized {
  std::vector<int8_t> high, low;
  float scale = -1.0F;
  int32_t excess = -1, low_excess = -1;
};

enum class Form : uint8_t { kLines, kQuads, kSigns };

// The code at `place`, which is then set back to the filling.
int8_t Take(int8_t* place, Form form) {
  const int8_t code = std::exchange(*place, int8_t{0x5a});
  if (form != Form::kSigns) return code;
  const auto sign = static_cast<uint8_t>(std::exchange(place[64], int8_t{0x5a}));
  EXPECT_TRUE(sign == 0x80 || sign == 0x7f) << int{sign};
  return static_cast<int8_t>(sign == 0x7f ? -code : code);
}

int32_t SumOfNegatives(const std::vector<int8_t>& codes) {
  int32_t sum = 0;
  for (const int8_t code : codes) sum += std::min<int32_t>(code, 0);
  return sum;
}

// As the last code row of a block of 3 and the first of one of 2; in quads as row 1 of both.
Quantized Quantize(const KernelTable& table, const std::vector<float>& row, bool two_planes, Form form) {
  const auto inputs = static_cast<int64_t>(row.size());
  const int64_t padded = (inputs + kStepInputs - 1) / kStepInputs * kStepInputs;
  GuardedArray<float> x(inputs);
  for (int64_t i = 0; i < inputs; ++i) x[i] = row[static_cast<size_t>(i)];
  const bool quads = form == Form::kQuads;
  const int64_t row_bytes = form == Form::kSigns ? 128 : 64, quad_stride = quads ? 64 : 4;
  const int64_t stride = quads ? 1024 : 3 * row_bytes, low_stride = quads ? 1024 : 2 * row_bytes;
  GuardedArray<int8_t> high(padded / 64 * stride), low(padded / 64 * low_stride);
  std::memset(high.data(), 0x5a, static_cast<size_t>(high.size()));
  std::memset(low.data(), 0x5a, static_cast<size_t>(low.size()));
  Quantized result;
  QuantizeArgs args;
  args.x = x.data();
  args.inputs = inputs;
  args.padded_inputs = padded;
  args.codes = high.data() + (quads ? 4 : 2 * row_bytes);
  args.low = two_planes ? low.data() + (quads ? 4 : 0) : nullptr;
  args.chunk_stride = stride;
  args.low_chunk_stride = low_stride;
  args.quad_stride = quad_stride;
  args.scale = &result.scale;
  args.excess = &result.excess;
  args.low_excess = &result.low_excess;
  table.quantize_row(args);
  for (int64_t i = 0; i < padded; ++i) {
    const int64_t place = i % 64 / 4 * quad_stride + i % 4;
    result.high.push_back(Take(args.codes + i / 64 * stride + place, form));
    if (two_planes) result.low.push_back(Take(args.low + i / 64 * low_stride + place, form));
  }
  for (int64_t i = 0; i < high.size(); ++i) EXPECT_EQ(high[i], 0x5a) << table.name << " wrote another row's codes";
  for (int64_t i = 0; i < low.size(); ++i) EXPECT_EQ(low[i], 0x5a) << table.name << " wrote another row's codes";
  return result;
}

void CheckQuantize(const std::vector<float>& row, const std::string& what) {
  for (const bool two_planes : {false, true}) {
    const Quantized expected = Quantize(PortableKernels(), row, two_planes, Form::kLines);
    for (const KernelTable* table : AvailableKernels()) {
      for (const Form form : {Form::kLines, Form::kQuads, Form::kSigns}) {
        if ((form == Form::kSigns) != table->sign_codes) continue;
        const Quantized found = Quantize(*table, row, two_planes, form);
        const std::string where = what + " of " + std::to_string(row.size()) + (two_planes ? ", two planes, " : ", ") +
                                  table->name + " form " + std::to_string(static_cast<int>(form));
        EXPECT_EQ(found.high, expected.high) << where;
        EXPECT_EQ(found.low, expected.low) << where;
        EXPECT_TRUE(SameBits(found.scale, expected.scale)) << where << ": " << found.scale << ", " << expected.scale;
        const bool negatives = table->sign_codes;
        EXPECT_EQ(found.excess, negatives ? SumOfNegatives(expected.high) : expected.excess) << where;
        if (!two_planes) continue;
        EXPECT_EQ(found.low_excess, negatives ? SumOfNegatives(expected.low) : expected.low_excess) << where;
      }
    }
  }
}

constexpr int64_t kLengths[] = {1, 3, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 172, 256, 1000, 4096};

// Whole blocks of rows by one thread, or all rows and then all blocks, and with the normed rows stored or not.
TEST(PackedMatmulTest, RowsAreLoadedAlikeByAnyNumberOfThreads) {
  const int64_t inputs = 200, outputs = 40;
  const TestPackedMatrix lines(PackedType::kW8, outputs, inputs, 8), quads(PackedType::kQuads, outputs, inputs, 8);
  const Matrix norm = RandomMatrix(1, inputs, 10);
  const std::span<const float> norm_weight(norm.row(0), static_cast<size_t>(inputs));
  for (const int64_t rows : {1, 7, 16, 17, 32, 40, 64, 130}) {
    const Matrix x = RandomMatrix(rows, inputs, 9);
    for (const bool two_planes : {false, true}) {
      ForEveryQueue([&](Queue& queue, const std::string& name) {
        const Weight weight = Weight::Of((queue.table->reads_lines ? lines : quads).matrix(), two_planes);
        Matrix normed(rows, inputs), expected(rows, outputs);
        base::ThreadPool one(1, false);
        Queue alone{&one, queue.table};
        RmsNorm(alone, x, norm_weight, 1e-5F, normed);
        for (int64_t r = 0; r < rows; ++r) {
          Matmul(alone, {normed.row(r), 1, inputs, normed.stride()}, weight, {},
                 {expected.row(r), 1, outputs, expected.stride()});
        }
        MatmulInput input;
        input.Reserve(*queue.table, weight.kind, rows, inputs);
        for (const int64_t kept : {rows, int64_t{0}}) {
          Matrix kept_rows(kept, inputs), out(rows, outputs);
          input.LoadNormed(queue, x, norm_weight, 1e-5F, kept_rows);
          const MatmulJob job{&weight, {}, out};
          Matmul(queue, input, std::span(&job, 1));
          ExpectSameBits(out, expected, name + " rows " + std::to_string(rows) + " kept " + std::to_string(kept));
          if (kept > 0) ExpectSameBits(kept_rows, normed, name);
        }
      });
    }
  }
}

TEST(PackedMatmulTest, APromptGoesByTheRowsThatTilesTakeTogether) {
  const KernelTable& tiles = KernelsFor("amx-twin");
  EXPECT_EQ(PromptRows(tiles, InputKind::kInt8), kMaxCodeRows);
  EXPECT_EQ(PromptRows(tiles, InputKind::kF32), 256);
  EXPECT_EQ(PromptRows(PortableKernels(), InputKind::kInt8), 256);
}

TEST(QuantizeRowTest, EveryTargetFindsTheSameCodes) {
  for (const int64_t inputs : kLengths) {
    CheckQuantize(RandomFloats(inputs, static_cast<uint32_t>(inputs)), "random");
    CheckQuantize(std::vector<float>(static_cast<size_t>(inputs), -0.0F), "zeros");
    CheckQuantize(RandomFloats(inputs, 7, 1e-31F), "tiny");
    CheckQuantize(RandomFloats(inputs, 8, 1e-40F), "denormals");
    CheckQuantize(RandomFloats(inputs, 9, 1e37F), "huge");
  }
}

TEST(QuantizeRowTest, OneRowBelowAndOneAboveTheSmallestMagnitude) {
  CheckQuantize({1e-30F, -0.5e-30F}, "smallest");
  CheckQuantize({std::nextafter(1e-30F, 0.0F), 0.0F}, "below the smallest");
  CheckQuantize({std::numeric_limits<float>::max(), 1.0F}, "largest");
}

TEST(QuantizeRowTest, NanAndInfinityGiveScaleNanAtAnyPlace) {
  for (const int64_t inputs : kLengths) {
    for (const float bad : {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      for (const int64_t at : {int64_t{0}, inputs / 2, inputs - 1}) {
        std::vector<float> row = RandomFloats(inputs, 10);
        row[static_cast<size_t>(at)] = bad;
        CheckQuantize(row, "not finite");
        EXPECT_TRUE(std::isnan(Quantize(PortableKernels(), row, false, Form::kLines).scale));
      }
    }
  }
}

TEST(QuantizeRowTest, TiesGoToEvenAndPlanesAddUp) {
  std::vector<float> row{127.0F};
  for (int i = -126; i <= 126; ++i) row.push_back(static_cast<float>(i) + 0.5F);
  CheckQuantize(row, "ties");
  std::vector<float> wide{32512.0F, -32512.0F};
  for (int i = -32512; i <= 32511; i += 97) wide.push_back(static_cast<float>(i) + 0.5F);
  CheckQuantize(wide, "wide ties");
  const Quantized narrow = Quantize(PortableKernels(), row, false, Form::kLines);
  EXPECT_EQ(narrow.high[127], 0);  // 0.5: i = 0 is value 127
  EXPECT_EQ(narrow.high[128], 2);  // 1.5
  const Quantized planes = Quantize(PortableKernels(), wide, true, Form::kLines);
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(256 * planes.high[i] + planes.low[i], static_cast<int>(std::nearbyint(wide[i]))) << i;
  }
}

}  // namespace
}  // namespace hydrant::kernels::matmul_packed_test
