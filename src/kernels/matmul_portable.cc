// SPDX-License-Identifier: Apache-2.0
// The slow twin of every matmul: plain loops in the order of docs/algorithms/order_of_additions.md.
#include <cmath>

#include "kernels/targets.h"
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

}  // namespace

void MatmulPortable(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  for (int64_t o = output_begin; o < output_end; ++o) {
    for (int64_t r = 0; r < args.rows; ++r) {
      const float* x = args.packed_slices + r * args.padded_slice * kSlices;
      float sum[kSlices] = {};
      for (int64_t j = 0; j < args.padded_slice; ++j) {
        for (int64_t s = 0; s < kSlices; ++s) {
          const int64_t input = s * args.slice + j;
          // Slices are padded to whole groups of 8 with zeros, which turn a -0 into +0: as in the vector kernels.
          const float weight = j < args.slice && input < args.inputs ? WeightAt(args, o, input) : 0.0F;
          sum[s] = std::fma(x[j * kSlices + s], weight, sum[s]);
        }
      }
      const float total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
      const float value = args.bias != nullptr ? total + args.bias[o] : total;
      float& out = args.out[r * args.out_stride + o];
      out = args.add ? out + value : value;
    }
  }
}

}  // namespace hydrant::kernels
