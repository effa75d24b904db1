// SPDX-License-Identifier: Apache-2.0
// What the tests of the tile matmuls share: forms of a kernel against the portable one, and tiles that count.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/amx/tiles_software.h"
#include "kernels/kernels.h"
#include "kernels/portable/entries.h"
#include "kernels/test_util/packed.h"
#include "kernels/test_util/test_util.h"

namespace hydrant::kernels {
namespace {

using PackedMatmul = void (*)(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);

struct Form {
  const char* name;
  PackedMatmul matmul;
};

struct Options {
  bool bias = false, add = false;
  int64_t range_panels = 1 << 20;
};

inline std::vector<float> Product(const KernelTable& plan, PackedMatmul matmul, const TestPackedMatrix& weight,
                                  TestCodes& codes, const Options& options) {
  const PackedMatrix& matrix = weight.matrix();
  codes.PackFor(plan);
  const int64_t stride = matrix.outputs + 3;
  GuardedArray<float> out((codes.rows() - 1) * stride + matrix.outputs), bias(matrix.outputs);
  for (int64_t i = 0; i < out.size(); ++i) out[i] = 0.25F * static_cast<float>(i % 977);
  for (int64_t o = 0; o < bias.size(); ++o) bias[o] = 0.125F * static_cast<float>(o % 31) - 1.7F;
  PackedMatmulArgs args = codes.Args(matrix);
  args.bias = options.bias ? bias.data() : nullptr;
  args.out = out.data();
  args.out_stride = stride;
  args.add = options.add;
  for (int64_t p = 0; p < matrix.num_panels(); p += options.range_panels) {
    matmul(args, p, std::min(p + options.range_panels, matrix.num_panels()));
  }
  return {out.data(), out.data() + out.size()};
}

// Each form's bits against the portable kernel's, its codes packed as `plan` says.
inline void CheckForms(const KernelTable& plan, const std::vector<Form>& forms, PackedType type, int64_t code_rows,
                       int64_t outputs, int64_t inputs, bool two_planes, const Options& options) {
  const TestPackedMatrix weight(type, outputs, inputs, 1, Values::kExtreme);
  TestCodes codes(code_rows, inputs, two_planes, 2);
  const std::vector<float> expected = Product(PortableKernels(), PackedMatmulPortable, weight, codes, options);
  for (const Form& form : forms) {
    const std::vector<float> out = Product(plan, form.matmul, weight, codes, options);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(SameBits(out[i], expected[i]))
          << form.name << (type == PackedType::kW4 ? " w4" : " w8 or quads") << " code rows=" << code_rows
          << " O=" << outputs << " I=" << inputs << (two_planes ? " two planes" : "") << ": value " << i << " is "
          << out[i] << ", expected " << expected[i];
    }
  }
}

// Tiles that count.
struct Counts {
  int64_t products = 0, loads = 0;
};
inline Counts counts_now;

struct CountedTiles : SoftwareTiles {
  template <int kTile, int kOffset = 0>
  void Load(const void* from) {
    ++counts_now.loads;
    SoftwareTiles::Load<kTile, kOffset>(from);
  }
  template <int kTile>
  void LoadOnce(const void* from) {
    ++counts_now.loads;
    SoftwareTiles::LoadOnce<kTile>(from);
  }
  template <int kTile>
  void LoadLines(const void* from, int64_t stride) {
    ++counts_now.loads;
    SoftwareTiles::LoadLines<kTile>(from, stride);
  }
  template <int kSum, int kA, int kB>
  void MultiplyU8S8() {
    ++counts_now.products;
    SoftwareTiles::MultiplyU8S8<kSum, kA, kB>();
  }
  template <int kSum, int kA, int kB>
  void MultiplyS8U8() {
    ++counts_now.products;
    SoftwareTiles::MultiplyS8U8<kSum, kA, kB>();
  }
};

}  // namespace
}  // namespace hydrant::kernels
