// SPDX-License-Identifier: Apache-2.0
// f32 matmul over f32, bf16 or f16 weights for the vector targets, in two ways that add in the same order
// (docs/algorithms/order_of_additions.md):
// - few rows, *slices*: a vector holds one step of all 8 input slices of an output, transposed in registers from the 8
//   streams of a weight row. Cost is near one read of the weights; a further row adds one fused multiply-add a vector;
// - many rows, *lanes*: a vector holds one input of as many rows as it has lanes, and a weight is broadcast. Weights
//   are widened once per 64 rows into a panel that stays in L1.
// Loops over rows, outputs and vectors are unrolled by name: GCC 12 keeps arrays of registers in memory around loops
// that it has not unrolled early (four rows of bf16: 21 -> 33 GMAC/s on one core of AMD Zen 4, prefetches included).
// Included by target files inside their unnamed namespace, after the primitives: V, kLanes, kSliceOutputs, Zero, LoadV,
// StoreV, AddV, FmaV, Broadcast, SliceVectors, BroadcastSlices, Expand, WidenRow, Transpose, SumSlices.

constexpr int64_t kPanel = 16;  // outputs
// Inputs: a panel of 16 * 144 floats takes 9 KiB, 32 rows of inputs 16 KiB of a 48 KiB L1.
constexpr int64_t kChunk = 128;
// Not a multiple of 4 KiB / 16: rows of the panel must not fall on the same cache sets.
constexpr int64_t kStride = 144;
constexpr int64_t kMaxRows = 64;  // ops.cc splits more

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

// --- lanes ---

// Sums of [output][row]; `level` are the open sums of the tree over slices, `partial` an unfinished chain.
struct Panel {
  alignas(64) float weights[kPanel][kStride];
  alignas(64) float partial[kPanel][kMaxRows];
  alignas(64) float level[3][kPanel][kMaxRows];
};

// Adds slice s to ((0+1)+(2+3))+((4+5)+(6+7)); complete in level[0] after s = 7.
inline void MergeSlice(Panel& panel, int64_t s, int64_t output, int64_t row, V sum) {
  float* const zero = &panel.level[0][output][row];
  float* const one = &panel.level[1][output][row];
  float* const two = &panel.level[2][output][row];
  switch (s) {
    case 0: StoreV(zero, sum); break;
    case 1: StoreV(zero, AddV(LoadV(zero), sum)); break;
    case 2: StoreV(one, sum); break;
    case 3: StoreV(zero, AddV(LoadV(zero), AddV(LoadV(one), sum))); break;
    case 4: StoreV(one, sum); break;
    case 5: StoreV(one, AddV(LoadV(one), sum)); break;
    case 6: StoreV(two, sum); break;
    default: StoreV(zero, AddV(LoadV(zero), AddV(LoadV(one), AddV(LoadV(two), sum)))); break;
  }
}

// One chunk of one slice.
struct ChunkRange {
  int64_t slice, begin, count;  // inputs
  bool first, last;             // of its slice
  bool padded;                  // the slices way pads this slice with zeros, which turns a sum of -0 into +0
};

// kVectors * kLanes rows from `row` on, kOutputs outputs from `output` on.
template <int64_t kVectors, int64_t kOutputs>
inline void MultiplyTile(const MatmulArgs& args, const ChunkRange& chunk, int64_t output, int64_t row, Panel& panel) {
  const int64_t group_stride = args.inputs * kLanes;
  const float* x = args.packed_lanes + row * args.inputs + chunk.begin * kLanes;
  V sums[kOutputs][kVectors];
#pragma GCC unroll 16
  for (int64_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      sums[o][v] = chunk.first ? Zero() : LoadV(&panel.partial[output + o][row + v * kLanes]);
    }
  }
  const float* w = panel.weights[output];
  for (int64_t j = 0; j < chunk.count; ++j) {
    V inputs[kVectors];
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) inputs[v] = LoadV(x + v * group_stride + j * kLanes);
#pragma GCC unroll 16
    for (int64_t o = 0; o < kOutputs; ++o) {
      const V weight = Broadcast(w + o * kStride + j);
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v) sums[o][v] = FmaV(inputs[v], weight, sums[o][v]);
    }
  }
#pragma GCC unroll 16
  for (int64_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t r = row + v * kLanes;
      if (!chunk.last) {
        StoreV(&panel.partial[output + o][r], sums[o][v]);
      } else {
        MergeSlice(panel, chunk.slice, output + o, r, chunk.padded ? AddV(sums[o][v], Zero()) : sums[o][v]);
      }
    }
  }
}

void MultiplyChunk(const MatmulArgs& args, const ChunkRange& chunk, int64_t padded_rows, Panel& panel) {
  int64_t row = 0;
  for (; row + 2 * kLanes <= padded_rows; row += 2 * kLanes) {
    for (int64_t o = 0; o < kPanel; o += kTileOutputs) MultiplyTile<2, kTileOutputs>(args, chunk, o, row, panel);
  }
  if (row < padded_rows) {
    for (int64_t o = 0; o < kPanel; o += 2 * kTileOutputs)
      MultiplyTile<1, 2 * kTileOutputs>(args, chunk, o, row, panel);
  }
}

template <FloatType kType>
inline void WidenChunk(const MatmulArgs& args, int64_t output, int64_t outputs, const ChunkRange& chunk, Panel& panel) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  for (int64_t o = 0; o < outputs; ++o) {
    const uint8_t* from = WeightRow(args, output + o) + chunk.begin * kBytes;
    // The next panel, into L2: the rows of a panel are as many streams, more than the hardware follows well.
    const uint8_t* next = from + kPanel * args.row_stride * kBytes;
    for (int64_t b = 0; b < chunk.count * kBytes; b += 64) __builtin_prefetch(next + b, 0, 2);
    WidenRow<kType>(from, chunk.count, panel.weights[o]);
  }
}

// Bias and old output are added row by row, once outputs are the fast index again.
void StorePanel(const MatmulArgs& args, int64_t output, int64_t outputs, Panel& panel) {
  for (int64_t row = 0; row < args.lane_rows; row += kLanes) {
    for (int64_t o = 0; o < outputs; o += kLanes) {
      V block[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) block[i] = LoadV(&panel.level[0][o + i][row]);
      Transpose(block);
      const int64_t rows = args.lane_rows - row < kLanes ? args.lane_rows - row : kLanes;
      const int64_t columns = outputs - o < kLanes ? outputs - o : kLanes;
      for (int64_t r = 0; r < rows; ++r) {
        float* out = args.out + (row + r) * args.out_stride + output + o;
        V value = block[r];
        if (columns < kLanes) {
          alignas(64) float sums[kLanes];
          StoreV(sums, value);
          for (int64_t c = 0; c < columns; ++c) StoreOutput(args, row + r, output + o + c, sums[c]);
          continue;
        }
        if (args.bias != nullptr) value = AddV(value, LoadV(args.bias + output + o));
        StoreV(out, args.add ? AddV(LoadV(out), value) : value);
      }
    }
  }
}

template <FloatType kType>
void MultiplyLanes(const MatmulArgs& args, int64_t output, int64_t outputs, Panel& panel) {
  const int64_t padded_rows = (args.lane_rows + kLanes - 1) / kLanes * kLanes;
  for (int64_t s = 0; s < kSlices; ++s) {
    const int64_t count = SliceCount(args, s);
    int64_t done = 0;
    do {
      ChunkRange chunk;
      chunk.slice = s;
      chunk.begin = s * args.slice + done;
      chunk.count = count - done < kChunk ? count - done : kChunk;
      chunk.first = done == 0;
      done += chunk.count;
      chunk.last = done == count;
      chunk.padded = count < args.padded_slice;
      WidenChunk<kType>(args, output, outputs, chunk, panel);
      MultiplyChunk(args, chunk, padded_rows, panel);
    } while (done < count);
  }
  StorePanel(args, output, outputs, panel);
}

// --- slices ---

// So few rows multiply faster than weights come, and their inputs leave room in L1.
constexpr int64_t kFewRows = 4;

// 8 inputs of each slice of one output, 32 bytes apart, where a slice ends inside the group: zeros after it.
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

// As many bytes of later outputs as a group of 8 steps takes: the slices of a row are too many streams for the
// hardware. From memory to L2, because they would overflow L1, and for few rows the next outputs' to L1.
template <int64_t kRows>
inline void FetchLater(const uint8_t* weights, int64_t group_bytes, int64_t far, int64_t near) {
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

// Rows row .. row + kRows - 1 (of the slice rows) and kVectors * kSliceOutputs outputs; those past `outputs` repeat the
// last.
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
  // Whole outputs ahead, so that the address follows from this row's.
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
  if (args.lane_rows > 0) __builtin_memset(panel.weights, 0, sizeof(panel.weights));  // outputs past the end
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

// `rows` <= kLanes rows of x as [inputs][kLanes], zero lanes after them.
void PackLanesKernel(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed) {
  int64_t i = 0;
  for (; i + kLanes <= inputs; i += kLanes) {
    V block[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) block[r] = r < rows ? LoadV(x + r * stride + i) : Zero();
    Transpose(block);
    for (int64_t j = 0; j < kLanes; ++j) StoreV(packed + (i + j) * kLanes, block[j]);
  }
  for (; i < inputs; ++i) {
    for (int64_t r = 0; r < kLanes; ++r) packed[i * kLanes + r] = r < rows ? x[r * stride + i] : 0.0F;
  }
}
