// SPDX-License-Identifier: Apache-2.0
// f32 matmul over f32, bf16 or f16 weights for the vector targets, in two ways that add in the same order
// (docs/algorithms/order_of_additions.md):
// - few rows, *slices*: a vector holds one step of all 8 input slices of an output, transposed in registers from 8
//   streams of a weight row. The cost is little more than one read of the weights; each row adds one fused multiply-add
//   a vector;
// - many rows, *lanes*: a vector holds one input of as many rows as it has lanes, and a weight is broadcast
//   (generic/matmul_lanes_inl.h).
// Loops over rows, outputs and vectors are unrolled by name: GCC 12 keeps arrays of registers in memory around loops
// that it has not unrolled early (four rows of bf16: 21 -> 33 GMAC/s on one core of AMD Zen 4, prefetches included).
// Included by target files inside their unnamed namespace, after the primitives: V, kLanes, kSliceOutputs, Zero, LoadV,
// StoreV, AddV, FmaV, BroadcastOne, BroadcastPair, SliceVectors, BroadcastSlices, Expand, kWidens, WidenRow, Transpose,
// SumSlices.

constexpr int64_t kPanel = 16;  // outputs

inline int64_t ElementBytes(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

inline const uint8_t* WeightRow(const MatmulArgs& args, int64_t output) {
  return args.weight + output * args.row_stride * ElementBytes(args.type);
}

inline int64_t SliceCount(const MatmulArgs& args, int64_t s) {
  const int64_t rest = args.inputs - s * args.slice;
  return rest < 0 ? 0 : (rest < args.slice ? rest : args.slice);
}

inline void StoreOutput(const MatmulArgs& args, int64_t row, int64_t output, float sum) {
  const float value = args.bias != nullptr ? sum + args.bias[output] : sum;
  float& out = args.out[row * args.out_stride + output];
  out = args.add ? out + value : value;
}

#include "kernels/generic/matmul_lanes_inl.h"

// --- slices ---

// Up to so many rows are multiplied faster than their weights come, and their inputs leave room in L1.
constexpr int64_t kFewRows = 4;

// 8 inputs of each slice of one output, 32 bytes apart, for a group in which a slice ends; zeros follow its end.
struct TailWeights {
  alignas(64) uint8_t bytes[kSlices][32];
};

inline void CopyTail(const MatmulArgs& args, const uint8_t* row, int64_t step, TailWeights& tail) {
  const int64_t bytes = ElementBytes(args.type);
  for (int64_t s = 0; s < kSlices; ++s) {
    const int64_t rest = SliceCount(args, s) - step;
    const int64_t count = rest < 0 ? 0 : (rest < 8 ? rest : 8);
    __builtin_memset(tail.bytes[s], 0, 32);
    __builtin_memcpy(tail.bytes[s], row + (s * args.slice + step) * bytes, static_cast<uint64_t>(count * bytes));
  }
}

template <FloatType kType>
inline void ExpandTail(const MatmulArgs& args, const uint8_t* const* rows, int64_t step, V* weights) {
  TailWeights tails[kSliceOutputs];
  const uint8_t* streams[kSliceOutputs];
#pragma GCC unroll 16
  for (int64_t o = 0; o < kSliceOutputs; ++o) {
    CopyTail(args, rows[o], step, tails[o]);
    streams[o] = tails[o].bytes[0];
  }
  Expand<kType>(streams, 32, weights);
}

// Fetches as many bytes of later outputs as a group of 8 steps takes: a row's slices are more streams than the hardware
// follows. Lines come from memory to L2, since they would overflow L1. For few rows, those of the next outputs come to
// L1.
template <int64_t kRows>
[[gnu::always_inline]] inline void FetchLater(const uint8_t* weights, int64_t group_bytes, int64_t far, int64_t near) {
  for (int64_t b = 0; b < group_bytes; b += 64) {
    __builtin_prefetch(weights + far + b, 0, 2);
    if (kRows <= kFewRows) __builtin_prefetch(weights + near + b, 0, 3);
  }
}

// Each broadcast of inputs serves all vectors of weights.
template <int64_t kRows, int64_t kVectors>
inline void MultiplyGroup(const MatmulArgs& args, const float* x, const V (&weights)[kVectors][8],
                          V (&sums)[kRows][kVectors]) {
  const float* rows[kRows];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) {
    rows[r] = x + r * args.padded_slice * kSlices;
    asm("" : "+r"(rows[r]));  // else GCC 12 keeps 8 offsets for each row on the stack and loads one for each product
  }
#pragma GCC unroll 16
  for (int64_t j = 0; j < 8; ++j) {
#pragma GCC unroll 16
    for (int64_t r = 0; r < kRows; ++r) {
      const V inputs = BroadcastSlices(rows[r] + j * kSlices);
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = FmaV(inputs, weights[v][j], sums[r][v]);
    }
  }
}

// Multiplies rows row .. row + kRows - 1 (of the slice rows) by kVectors * kSliceOutputs outputs. Outputs past
// `outputs` repeat the last one.
template <FloatType kType, int64_t kRows, int64_t kVectors>
inline void MultiplySlices(const MatmulArgs& args, int64_t output, int64_t outputs, int64_t row, int64_t ahead) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  constexpr int64_t kOutputs = kVectors * kSliceOutputs;
  const uint8_t* from[kOutputs];
#pragma GCC unroll 16
  for (int64_t o = 0; o < kOutputs; ++o) from[o] = WeightRow(args, output + (o < outputs ? o : outputs - 1));
  V sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = Zero();
  }
  const float* x = args.packed_slices + row * args.padded_slice * kSlices;
  const int64_t shortest = SliceCount(args, kSlices - 1);
  int64_t step = 0;
  V weights[kVectors][8];
  for (; step + 8 <= shortest; step += 8) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      const uint8_t* streams[kSliceOutputs];
#pragma GCC unroll 16
      for (int64_t o = 0; o < kSliceOutputs; ++o) {
        const uint8_t* base = from[v * kSliceOutputs + o];
        streams[o] = base + step * kBytes;
        FetchLater<kRows>(base + step * kSlices * kBytes, 8 * kSlices * kBytes, ahead,
                          kOutputs * args.row_stride * kBytes);
      }
      Expand<kType>(streams, args.slice * kBytes, weights[v]);
    }
    MultiplyGroup(args, x + step * kSlices, weights, sums);
  }
  for (; step < args.slice; step += 8) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      ExpandTail<kType>(args, from + v * kSliceOutputs, step, weights[v]);
    }
    MultiplyGroup(args, x + step * kSlices, weights, sums);
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      float total[kSliceOutputs];
      SumSlices(sums[r][v], total);
      for (int64_t o = 0; o < kSliceOutputs && v * kSliceOutputs + o < outputs; ++o) {
        StoreOutput(args, args.lane_rows + row + r, output + v * kSliceOutputs + o, total[o]);
      }
    }
  }
}

template <FloatType kType, int64_t kRows>
inline void MultiplySlicesPanel(const MatmulArgs& args, int64_t output, int64_t outputs, int64_t row) {
  constexpr int64_t kVectors = SliceVectors(kRows);
  constexpr int64_t kStep = kVectors * kSliceOutputs;
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  // A distance of whole outputs, so that the address to fetch follows from this row's.
  const int64_t row_bytes = args.row_stride * kBytes;
  const int64_t ahead = ((kRows <= kFewRows ? 32768 : 16384) / row_bytes + kStep) * row_bytes;
  for (int64_t o = 0; o < outputs; o += kStep) {
    MultiplySlices<kType, kRows, kVectors>(args, output + o, outputs - o < kStep ? outputs - o : kStep, row, ahead);
  }
}

template <FloatType kType>
void MultiplySlicesRows(const MatmulArgs& args, int64_t output, int64_t outputs) {
  const int64_t rows = args.rows - args.lane_rows;
  for (int64_t row = 0; row < rows;) {
    switch (rows - row) {
      case 1: return MultiplySlicesPanel<kType, 1>(args, output, outputs, row);
      case 2: return MultiplySlicesPanel<kType, 2>(args, output, outputs, row);
      case 3: return MultiplySlicesPanel<kType, 3>(args, output, outputs, row);
      case 4: return MultiplySlicesPanel<kType, 4>(args, output, outputs, row);
      case 5: return MultiplySlicesPanel<kType, 5>(args, output, outputs, row);
      case 6: return MultiplySlicesPanel<kType, 6>(args, output, outputs, row);
      case 7: return MultiplySlicesPanel<kType, 7>(args, output, outputs, row);
      default: MultiplySlicesPanel<kType, 8>(args, output, outputs, row); row += 8;
    }
  }
}

template <FloatType kType>
void MatmulOf(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  Panel panel;
  for (int64_t output = output_begin; output < output_end; output += kPanel) {
    const int64_t outputs = output_end - output < kPanel ? output_end - output : kPanel;
    if (args.lane_rows > 0) MultiplyLanes<kType>(args, output, outputs, panel);
    if (args.lane_rows < args.rows) MultiplySlicesRows<kType>(args, output, outputs);
  }
}

void MatmulKernel(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  if (args.type == FloatType::kF32) return MatmulOf<FloatType::kF32>(args, output_begin, output_end);
  if (args.type == FloatType::kBF16) return MatmulOf<FloatType::kBF16>(args, output_begin, output_end);
  MatmulOf<FloatType::kF16>(args, output_begin, output_end);
}
