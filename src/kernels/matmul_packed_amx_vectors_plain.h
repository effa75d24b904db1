// SPDX-License-Identifier: Apache-2.0
// Expansion and epilogue of the tile matmul in plain loops. Included inside an unnamed namespace.

struct PlainVectors {
  // 128 codes of one output to two lines of biased weights.
  __attribute__((noinline)) static void Expand(const uint8_t* line, const uint8_t* tables, const uint8_t* dictionary,
                                               uint8_t* low, uint8_t* high) {
    const uint8_t* low_table = dictionary + tables[0] * kTableEntries;
    const uint8_t* high_table = dictionary + tables[1] * kTableEntries;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLineBytes; ++i) {
      low[i] = low_table[line[i] & 15];
      high[i] = high_table[line[i] >> 4];
    }
  }

  // `sums` (and `more`, where given, to be added) [16 outputs][16 code rows] of biased weights, to `out`.
  static void Finish(const PackedMatmulArgs& args, int64_t panel, const RowBlock& block, const int32_t* sums,
                     const int32_t* more) {
    const int64_t planes = args.two_planes ? 2 : 1;
    for (int64_t o = 0; o < kPanelOutputs && panel * kPanelOutputs + o < args.outputs; ++o) {
      const int64_t output = panel * kPanelOutputs + o;
      for (int64_t r = 0; r < block.rows; r += planes) {
        const int64_t row = (block.first + r) / planes;
        const int32_t first = Sum(args, block, sums, more, o, r);
        const float sum = planes == 1 ? static_cast<float>(first)
                                      : static_cast<float>(256.0 * first + Sum(args, block, sums, more, o, r + 1));
        const float scale = args.row_scales[output] * args.scales[row];
        float value = sum * scale;
        if (args.bias != nullptr) value = value + args.bias[output];
        float& out = args.out[row * args.out_stride + output];
        out = args.add ? out + value : value;
      }
    }
  }

 private:
  // Unsigned: the bias of 128 may carry a sum out of 32 bits, and its removal carries it back.
  static int32_t Sum(const PackedMatmulArgs& args, const RowBlock& block, const int32_t* sums, const int32_t* more,
                     int64_t o, int64_t r) {
    auto sum = static_cast<uint32_t>(sums[o * kTileRows + r]);
    if (more != nullptr) sum += static_cast<uint32_t>(more[o * kTileRows + r]);
    return static_cast<int32_t>(sum - static_cast<uint32_t>(args.sums128[block.first + r]));
  }
};
