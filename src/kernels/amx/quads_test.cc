// SPDX-License-Identifier: Apache-2.0
// The tile matmul of quads in all its forms against the portable kernel. What the table amx-quads offers is tested in
// matmul_packed_test.cc besides.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/amx/tiles_software.h"
#include "kernels/test_util/amx_matmul.h"
#if defined(__x86_64__)
#include "kernels/amx/entries.h"
#include "kernels/amx/tiles_instructions.h"
#include "kernels/avx512/entries.h"
#include "kernels/test_util/amx_trap.h"
#endif
#include "kernels/cpu_features.h"
#include "kernels/portable/entries.h"

namespace hydrant::kernels::quads_test {
namespace {

#include "kernels/amx/matmul_packed_quads_inl.h"
#include "kernels/amx/matmul_packed_vectors_plain.h"

// Blocks of at most 10 rows and of two sizes, as avx512 plans them.
KernelTable MakePlan() {
  KernelTable plan = PortableKernels();
  plan.plan_row_blocks = [](int64_t code_rows, int64_t* sizes) {
    const int64_t blocks = (code_rows + 9) / 10;
    for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
    return blocks;
  };
  return plan;
}

std::vector<Form> Forms() {
  std::vector<Form> forms = {{"plain", PackedMatmulAmxQuadsTwin}};
#if defined(__x86_64__)
  if (DetectCpuFeatures().avx512) forms.push_back({"AVX-512 with tiles in software", PackedMatmulAmxQuadsTwinAvx512});
  if (DetectCpuFeatures().amx) {
    forms.push_back({"AMX", PackedMatmulAmxQuads});
    forms.push_back({"AMX for few rows too", TileQuadMatmul<TileInstructions, PlainVectors>});
  }
#endif
  return forms;
}

void Check(int64_t code_rows, int64_t outputs, int64_t inputs, bool two_planes, const Options& options = {},
           const std::vector<Form>& forms = Forms()) {
  static const KernelTable plan = MakePlan();
  CheckForms(plan, forms, PackedType::kQuads, code_rows, outputs, inputs, two_planes, options);
}

// Up to 13 blocks, of one size and of two.
TEST(AmxQuadsTest, EveryNumberOfRowsGivesThePortableBits) {
  for (int64_t rows = 1; rows <= kMaxCodeRows; ++rows) {
    Check(rows, 50, 192, false);
    if (rows % 2 == 0) Check(rows, 33, 129, true);
    if (HasFatalFailure()) return;
  }
}

TEST(AmxQuadsTest, EveryShapeGivesThePortableBits) {
  for (const int64_t outputs : {1, 15, 16, 17, 33, 64, 143}) {
    for (const int64_t inputs : {1, 64, 128, 129, 385, 1100}) {
      for (const int64_t rows : {1, 2, 10, 11, 16, 23, 40}) {
        Check(rows, outputs, inputs, rows % 2 == 0, {rows == 11, rows != 16, 1 + inputs % 6});
        Check(rows, outputs, inputs, false);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Of 5 panels of 600 inputs, in ranges of 4 and 1: 10 times 64 inputs of each.
constexpr int64_t kCountedOutputs = 70, kCountedInputs = 600;
Counts Planned(int64_t rows) {
  const int64_t blocks = (rows + 9) / 10, large = rows % blocks;
  const int64_t pairs = large == 0 ? (blocks + 1) / 2 : std::max(large, blocks - large);
  return {5 * 10 * blocks, 5 * 10 * (pairs + blocks)};
}

TEST(AmxQuadsTest, ProductsAreAsManyAsPlanned) {
  const std::vector<Form> forms = {{"counted tiles", TileQuadMatmul<CountedTiles, PlainVectors>}};
  for (const int64_t rows : {1, 10, 11, 20, 21, 29, 64, 128}) {
    counts_now = {};
    Check(rows, kCountedOutputs, kCountedInputs, false, {true, rows == 20, 4}, forms);
    if (HasFatalFailure()) return;
    EXPECT_EQ(counts_now.products, Planned(rows).products) << rows;
    EXPECT_EQ(counts_now.loads, Planned(rows).loads) << rows;
  }
}

#if defined(__x86_64__)
TEST(AmxQuadsTest, TheTrappedInstructionsGiveThePortableBits) {
  if (DetectCpuFeatures().amx) GTEST_SKIP() << "this machine has AMX: nothing to trap";
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this machine has no AVX-512";
  const std::vector<Form> forms = {{"AMX, trapped", PackedMatmulAmxQuads}};
  for (const int64_t rows : {7, 10, 11, 18, 29, 64, 128}) {
    const TileTrap trap;
    Check(rows, kCountedOutputs, kCountedInputs, rows == 18, {true, rows == 10, 4}, forms);
    if (HasFatalFailure()) return;
    EXPECT_EQ(trap.products(), Planned(rows).products) << rows;
    EXPECT_EQ(trap.loads(), Planned(rows).loads) << rows;
    EXPECT_FALSE(trap.configured());
  }
}
#endif

}  // namespace
}  // namespace hydrant::kernels::quads_test
