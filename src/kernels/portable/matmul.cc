// SPDX-License-Identifier: Apache-2.0
// The slow twin of every matmul: plain loops in the order of docs/algorithms/order_of_additions.md.
#include <cmath>

#include "kernels/portable/entries.h"
#include "tensor/tensor.h"

namespace hydrant::kernels {
namespace {

float WeightAt(const MatmulArgs& args, int64_t output, int64_t input) {
  const int64_t index = output * args.row_stride + input;
  if (args.type == FloatType::kF32) {
    float value;
    __builtin_memcpy(&value, args.weight + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  __builtin_memcpy(&bits, args.weight + 2 * index, 2);
  if (args.type == FloatType::kBF16) return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  return Float16ToFloat(bits);
}

constexpr int64_t kSteps = 64;  // steps of weights that are decoded at a time

// weights[j][s] = input step + j of slice s of one output. As in the vector kernels, slices are padded with zeros to
// whole groups of 8 steps, and adding these turns a -0 into +0.
void Decode(const MatmulArgs& args, int64_t output, int64_t step, int64_t steps, float (*weights)[kSlices]) {
  for (int64_t j = 0; j < steps; ++j) {
    for (int64_t s = 0; s < kSlices; ++s) {
      const int64_t input = s * args.slice + step + j;
      weights[j][s] = step + j < args.slice && input < args.inputs ? WeightAt(args, output, input) : 0.0F;
    }
  }
}

}  // namespace

void MatmulPortable(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  float weights[kSteps][kSlices];
  float sums[kMatmulRows][kSlices];
  for (int64_t o = output_begin; o < output_end; ++o) {
    for (int64_t r = 0; r < args.rows; ++r) {
      for (int64_t s = 0; s < kSlices; ++s) sums[r][s] = 0.0F;
    }
    for (int64_t step = 0; step < args.padded_slice; step += kSteps) {
      const int64_t steps = args.padded_slice - step < kSteps ? args.padded_slice - step : kSteps;
      Decode(args, o, step, steps, weights);
      for (int64_t r = 0; r < args.rows; ++r) {
        const float* x = args.packed_slices + (r * args.padded_slice + step) * kSlices;
        for (int64_t j = 0; j < steps; ++j) {
          for (int64_t s = 0; s < kSlices; ++s) sums[r][s] = std::fma(x[j * kSlices + s], weights[j][s], sums[r][s]);
        }
      }
    }
    for (int64_t r = 0; r < args.rows; ++r) {
      const float* sum = sums[r];
      const float total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
      const float value = args.bias != nullptr ? total + args.bias[o] : total;
      float& out = args.out[r * args.out_stride + o];
      out = args.add ? out + value : value;
    }
  }
}

}  // namespace hydrant::kernels
