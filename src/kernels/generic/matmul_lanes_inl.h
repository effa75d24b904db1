// SPDX-License-Identifier: Apache-2.0
// Float matmul by lanes, for many rows. A tile is two vectors of rows (or one) by several outputs, whose sums stay in
// registers along a piece of one slice. Each broadcast of a weight serves all rows of the tile.
//
// If it is cheap, weights are broadcast from where they lie (kWidens<type> is false). Otherwise a panel of them is
// first widened to f32, once for all rows, to where it stays in L1. GMAC/s with 2,048 inputs and outputs (AMD Zen 3,
// one core; f16 needs two more operations a pair than bf16):
//   rows             8      16     32     64
//   bf16, widened    27.9   34.0   36.1   37.3
//   bf16, in place   29.4   40.2   39.5   39.7
//   f16, widened     20.7   34.6   35.3   37.9
//   f16, in place    19.6   28.4   27.8   27.9
//
// Included by generic/matmul_inl.h, which says what a target provides.

constexpr int64_t kMaxRows = kMatmulRows;  // of a call
// Inputs at a time: then a panel of 16 * 144 floats takes 9 KiB, and 32 rows of inputs take 16 KiB, of a 48 KiB L1.
constexpr int64_t kWidenedInputs = 128;
// Not a multiple of 4 KiB / 16: rows of the panel must not fall on the same cache sets.
constexpr int64_t kStride = 144;

// Sums of [output][row].
struct Panel {
  alignas(64) float weights[kPanel][kStride];
  alignas(64) float partial[kPanel][kMaxRows];   // an unfinished chain
  alignas(64) float level[3][kPanel][kMaxRows];  // the open sums of the tree over slices
};

// Part of one slice of a panel, as one call of MultiplyTile adds it.
struct Piece {
  int64_t slice, begin, count;  // inputs
  bool first, last;             // of its slice
  bool padded;                  // by slices, zeros are added to this slice, which turns a sum of -0 into +0
  const uint8_t* weights;       // input `begin` of the panel's first output
  int64_t stride;               // bytes between outputs
  int64_t outputs;              // how many there are; tiles repeat the last one
  int64_t ahead;                // bytes from these weights to those that are fetched meanwhile; 0: none
};

// Stores the sums of a piece. An unfinished chain is kept in `partial`. The sums of a whole slice join the tree
// ((0+1)+(2+3))+((4+5)+(6+7)), like a carry; after the last slice they are complete in level[0].
template <int64_t kVectors, int64_t kOutputs>
inline void StoreSums(const Piece& piece, int64_t output, int64_t row, V (&sums)[kOutputs][kVectors], Panel& panel) {
  if (!piece.last) {
#pragma GCC unroll 16
    for (int64_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v) StoreV(&panel.partial[output + o][row + v * kLanes], sums[o][v]);
    }
    return;
  }
  if (piece.padded) {
#pragma GCC unroll 16
    for (int64_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v) sums[o][v] = AddV(sums[o][v], Zero());
    }
  }
  int64_t level = 0;
  for (; (piece.slice >> level & 1) != 0; ++level) {
#pragma GCC unroll 16
    for (int64_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[o][v] = AddV(LoadV(&panel.level[level][output + o][row + v * kLanes]), sums[o][v]);
      }
    }
  }
  auto& to = piece.slice == kSlices - 1 ? panel.level[0] : panel.level[level];
#pragma GCC unroll 16
  for (int64_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) StoreV(&to[output + o][row + v * kLanes], sums[o][v]);
  }
}

// Adds inputs j and, of a pair, j + 1. Each output's chain goes through them in this order.
template <FloatType kType, int64_t kInputs, int64_t kVectors, int64_t kOutputs>
inline void MultiplyInputs(const float* x, int64_t group_stride, const uint8_t* const* weights, int64_t offset,
                           V (&sums)[kOutputs][kVectors]) {
  V inputs[kVectors][kInputs];
#pragma GCC unroll 16
  for (int64_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kInputs; ++i) inputs[v][i] = LoadV(x + v * group_stride + i * kLanes);
  }
#pragma GCC unroll 16
  for (int64_t o = 0; o < kOutputs; ++o) {
    V weight[2];
    if (kInputs == 2) {
      BroadcastPair<kType>(weights[o] + offset, weight);
    } else {
      weight[0] = BroadcastOne<kType>(weights[o] + offset);
    }
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kInputs; ++i) sums[o][v] = FmaV(inputs[v][i], weight[i], sums[o][v]);
    }
  }
}

// Multiplies kVectors * kLanes rows from `row` on by kOutputs outputs from `output` on. Not inlined: inside another
// function GCC 12 keeps these addresses in memory (25 -> 29 GMAC/s with 8 rows and weights in place).
template <FloatType kType, int64_t kVectors, int64_t kOutputs>
[[gnu::noinline]] void MultiplyTile(const MatmulArgs& args, const Piece& piece, int64_t output, int64_t row,
                                    Panel& panel) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  constexpr int64_t kLineInputs = 64 / kBytes;
  const int64_t group_stride = args.inputs * kLanes;
  const float* x = args.packed_lanes + row * args.inputs + piece.begin * kLanes;
  const uint8_t* weights[kOutputs];
  V sums[kOutputs][kVectors];
#pragma GCC unroll 16
  for (int64_t o = 0; o < kOutputs; ++o) {
    weights[o] = piece.weights + (output + o < piece.outputs ? output + o : piece.outputs - 1) * piece.stride;
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      sums[o][v] = piece.first ? Zero() : LoadV(&panel.partial[output + o][row + v * kLanes]);
    }
  }
  int64_t j = 0;
  for (int64_t line = 0; line < piece.count; line += kLineInputs) {
    if (piece.ahead != 0) {
#pragma GCC unroll 16
      for (int64_t o = 0; o < kOutputs; ++o) {
        // One line further for each output: in rows of 4 KiB the same lines would all fall on one set of L1.
        __builtin_prefetch(weights[o] + line * kBytes + piece.ahead + 64 * o, 0, 2);
      }
    }
    const int64_t end = line + kLineInputs < piece.count ? line + kLineInputs : piece.count;
    for (; j + 2 <= end; j += 2) {
      MultiplyInputs<kType, 2>(x + j * kLanes, group_stride, weights, j * kBytes, sums);
    }
  }
  if (j < piece.count) MultiplyInputs<kType, 1>(x + j * kLanes, group_stride, weights, j * kBytes, sums);
  StoreSums(piece, output, row, sums, panel);
}

template <FloatType kType>
void MultiplyPiece(const MatmulArgs& args, Piece piece, Panel& panel) {
  const int64_t padded_rows = (args.lane_rows + kLanes - 1) / kLanes * kLanes;
  int64_t row = 0;
  for (; row + 2 * kLanes <= padded_rows; row += 2 * kLanes) {
    for (int64_t o = 0; o < kPanel; o += kTileOutputs) MultiplyTile<kType, 2, kTileOutputs>(args, piece, o, row, panel);
    piece.ahead = 0;  // the first rows have fetched everything
  }
  if (row < padded_rows) {
    for (int64_t o = 0; o < kPanel; o += 2 * kTileOutputs) {
      MultiplyTile<kType, 1, 2 * kTileOutputs>(args, piece, o, row, panel);
    }
  }
}

// Widens the weights to f32 and points `piece` to them.
template <FloatType kType>
inline void WidenPiece(Piece& piece, Panel& panel) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  for (int64_t o = 0; o < piece.outputs; ++o) {
    const uint8_t* from = piece.weights + o * piece.stride;
    // Fetches the next panel to L2: each row of a panel is a stream, and they are more than the hardware follows well.
    const uint8_t* next = from + kPanel * piece.stride;
    for (int64_t b = 0; b < piece.count * kBytes; b += 64) __builtin_prefetch(next + b, 0, 2);
    WidenRow<kType>(from, piece.count, panel.weights[o]);
  }
  piece.weights = reinterpret_cast<const uint8_t*>(panel.weights);
  piece.stride = kStride * int64_t{sizeof(float)};
  piece.ahead = 0;
}

// Bias and old output are added row by row, where outputs are the fast index again.
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
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  Piece piece;
  piece.outputs = outputs;
  for (piece.slice = 0; piece.slice < kSlices; ++piece.slice) {
    const int64_t count = SliceCount(args, piece.slice);
    piece.padded = count < args.padded_slice;
    int64_t done = 0;
    do {
      piece.begin = piece.slice * args.slice + done;
      piece.count = kWidens<kType> && count - done > kWidenedInputs ? kWidenedInputs : count - done;
      piece.first = done == 0;
      done += piece.count;
      piece.last = done == count;
      piece.weights = WeightRow(args, output) + piece.begin * kBytes;
      piece.stride = args.row_stride * kBytes;
      // Rows of few inputs are too short for the hardware to follow. (256 inputs: 10 -> 19 GMAC/s with 8 rows, 15 -> 26
      // with 16.)
      piece.ahead = 2 * kPanel * piece.stride;
      if constexpr (kWidens<kType>) {
        WidenPiece<kType>(piece, panel);
        MultiplyPiece<FloatType::kF32>(args, piece, panel);
      } else {
        MultiplyPiece<kType>(args, piece, panel);
      }
    } while (done < count);
  }
  StorePanel(args, output, outputs, panel);
}

// Packs up to kLanes rows of x as [inputs][kLanes], with zeros in the lanes behind them.
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
