// SPDX-License-Identifier: Apache-2.0
// The slow twin of every packed matmul and of the quantisation of activations, in plain loops.
#include <cmath>

#include "kernels/packed.h"
#include "kernels/portable/entries.h"

namespace hydrant::kernels {
namespace {

// The 128 weights of one output in one step, without their bias of 128.
void DecodeStep(const PackedMatmulArgs& args, const uint8_t* panel, int64_t step, int64_t output, int32_t* weights) {
  const uint8_t* codes = panel + args.code_offset;
  if (args.type == PackedType::kQuads) {
    for (int64_t i = 0; i < kStepInputs; ++i) {
      weights[i] = codes[(((step * kStepInputs + i) / 4 * kPanelOutputs) + output) * 4 + i % 4] - 128;
    }
    return;
  }
  if (args.type == PackedType::kOctets) {
    for (int64_t i = 0; i < kStepInputs; ++i) {
      const int64_t group = step * 2 + i / kGroupInputs, block = step * 8 + i / 16;
      const uint8_t byte = codes[(block * kPanelOutputs + output) * 8 + i % 8];
      const int code = i % 16 < 8 ? byte & 15 : byte >> 4;
      weights[i] = args.dictionary[panel[group * kPanelPairs + output / 2] * kTableEntries + code] - 128;
    }
    return;
  }
  if (args.type == PackedType::kW8) {
    for (int64_t half = 0; half < 2; ++half) {
      const uint8_t* line = codes + ((step * 2 + half) * kPanelOutputs + output) * kLineBytes;
      for (int64_t i = 0; i < kLineBytes; ++i) weights[half * kLineBytes + i] = line[i] - 128;
    }
    return;
  }
  const uint8_t* line = panel + CodesAtW4(step) + output * kLineBytes;
  const uint8_t* tables = panel + TablesAtW4(step) + output * 2;
  for (int64_t half = 0; half < 2; ++half) {
    const uint8_t* table = args.dictionary + tables[half] * kTableEntries;
    for (int64_t i = 0; i < kLineBytes; ++i) {
      const int code = half == 0 ? line[i] & 15 : line[i] >> 4;
      weights[half * kLineBytes + i] = table[code] - 128;
    }
  }
}

// sums[r] += the step's products; unsigned, because the sums may wrap on the way.
void AddStep(const PackedMatmulArgs& args, int64_t step, const int32_t* weights, uint32_t* sums) {
  for (int64_t b = 0; b < args.num_blocks; ++b) {
    const RowBlock& block = args.blocks[b];
    for (int64_t r = 0; r < block.rows; ++r) {
      uint32_t sum = 0;
      for (int64_t half = 0; half < 2; ++half) {
        const int8_t* codes = block.codes + ((step * 2 + half) * block.rows + r) * kLineBytes;
        for (int64_t i = 0; i < kLineBytes; ++i) {
          sum += static_cast<uint32_t>(codes[i] * weights[half * kLineBytes + i]);
        }
      }
      sums[block.first + r] += sum;
    }
  }
}

void StoreOutput(const PackedMatmulArgs& args, int64_t output, const uint32_t* sums) {
  const int64_t rows = args.two_planes ? args.code_rows / 2 : args.code_rows;
  for (int64_t r = 0; r < rows; ++r) {
    float sum;
    if (args.two_planes) {
      const double high = static_cast<int32_t>(sums[2 * r]), low = static_cast<int32_t>(sums[2 * r + 1]);
      sum = static_cast<float>(256.0 * high + low);
    } else {
      sum = static_cast<float>(static_cast<int32_t>(sums[r]));
    }
    const float scale = args.row_scales[output] * args.scales[r];
    float value = sum * scale;
    if (args.bias != nullptr) value = value + args.bias[output];
    float& out = args.out[r * args.out_stride + output];
    out = args.add ? out + value : value;
  }
}

int64_t CodePlace(const QuantizeArgs& args, int64_t i, int64_t chunk_stride) {
  return i / 64 * chunk_stride + i % 64 / 4 * args.quad_stride + i % 4;
}

void StoreCode(const QuantizeArgs& args, int64_t i, int32_t code, uint32_t* sum, uint32_t* low_sum) {
  const int32_t high = args.low == nullptr ? code : (code + 128) >> 8;
  args.codes[CodePlace(args, i, args.chunk_stride)] = static_cast<int8_t>(high);
  *sum += static_cast<uint32_t>(high);
  if (args.low == nullptr) return;
  const int32_t low = code - 256 * high;
  args.low[CodePlace(args, i, args.low_chunk_stride)] = static_cast<int8_t>(low);
  *low_sum += static_cast<uint32_t>(low);
}

}  // namespace

void PackedMatmulPortable(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  int32_t weights[kStepInputs];
  uint32_t sums[kMaxCodeRows] = {};
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    for (int64_t o = 0; o < kPanelOutputs && p * kPanelOutputs + o < args.outputs; ++o) {
      for (int64_t r = 0; r < args.code_rows; ++r) sums[r] = 0;
      for (int64_t step = 0; step < args.steps; ++step) {
        DecodeStep(args, panel, step, o, weights);
        AddStep(args, step, weights, sums);
      }
      StoreOutput(args, p * kPanelOutputs + o, sums);
    }
  }
}

void QuantizeRowPortable(const QuantizeArgs& args) {
  float largest = 0.0F;
  bool finite = true;
  for (int64_t i = 0; i < args.inputs; ++i) {
    const float magnitude = std::fabs(args.x[i]);
    finite = finite && magnitude <= 3.402823466e38F;
    if (magnitude > largest) largest = magnitude;
  }
  const float top = args.low == nullptr ? 127.0F : 32512.0F;
  const bool zero = !finite || largest < kZeroRow;
  const float factor = zero ? 0.0F : top / largest;
  *args.scale = !finite ? __builtin_nanf("") : zero ? 0.0F : largest / top;
  uint32_t sum = 0, low_sum = 0;
  for (int64_t i = 0; i < args.padded_inputs; ++i) {
    const bool inside = !zero && i < args.inputs;
    const auto code = inside ? static_cast<int32_t>(std::nearbyint(args.x[i] * factor)) : 0;
    StoreCode(args, i, code, &sum, &low_sum);
  }
  *args.excess = static_cast<int32_t>(sum * 128U);
  if (args.low != nullptr) *args.low_excess = static_cast<int32_t>(low_sum * 128U);
}

void PackQuadsPortable(const int8_t* lines, int64_t stride, int64_t rows, int8_t* tile) {
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t r = 0; r < 16; ++r) tile[i / 4 * 64 + r * 4 + i % 4] = r < rows ? lines[r * stride + i] : int8_t{0};
  }
}

int64_t PlanRowBlocksPortable(int64_t code_rows, int64_t* sizes) {
  sizes[0] = code_rows;
  return code_rows > 0 ? 1 : 0;
}

}  // namespace hydrant::kernels
