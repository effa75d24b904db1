// SPDX-License-Identifier: Apache-2.0
// Expansion and epilogue of the tile matmul in plain loops. Included inside an unnamed namespace.

struct PlainVectors {
  // `kLines` lines of codes, with two table numbers each, to [kLines][2 halves][64] biased weights.
  template <int kLines>
  __attribute__((noinline)) static void Expand(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary,
                                               uint8_t* to) {
    for (int64_t line = 0; line < kLines; ++line) {
      const uint8_t* codes = lines + line * kLineBytes;
      const uint8_t* low_table = dictionary + tables[2 * line] * kTableEntries;
      const uint8_t* high_table = dictionary + tables[2 * line + 1] * kTableEntries;
      uint8_t *low = to + 2 * line * kLineBytes, *high = low + kLineBytes;
#pragma GCC unroll 4
      for (int64_t i = 0; i < kLineBytes; ++i) {
        low[i] = low_table[codes[i] & 15];
        high[i] = high_table[codes[i] >> 4];
      }
    }
  }

  // `sums` [16 outputs][16 code rows] of biased weights, to `out`.
  static void Finish(const PackedMatmulArgs& args, int64_t panel, const RowBlock& block, const int32_t* sums) {
    const int64_t planes = args.two_planes ? 2 : 1;
    for (int64_t o = 0; o < kPanelOutputs && panel * kPanelOutputs + o < args.outputs; ++o) {
      const int64_t output = panel * kPanelOutputs + o;
      for (int64_t r = 0; r < block.rows; r += planes) {
        Store(args, output, block.first + r, sums + o * kTileRows + r, 1);
      }
    }
  }

  // sums: [code_rows][16 outputs]
  static void FinishPanel(const PackedMatmulArgs& args, int64_t panel, const int32_t* sums) {
    const int64_t planes = args.two_planes ? 2 : 1;
    for (int64_t o = 0; o < kPanelOutputs && panel * kPanelOutputs + o < args.outputs; ++o) {
      for (int64_t r = 0; r < args.code_rows; r += planes) {
        Store(args, panel * kPanelOutputs + o, r, sums + r * kPanelOutputs + o, kPanelOutputs);
      }
    }
  }

 private:
  // Stores an output of the row whose first (or only) code row is `code_row`. `stride`: from one code row's sums to the
  // next's.
  static void Store(const PackedMatmulArgs& args, int64_t output, int64_t code_row, const int32_t* sums,
                    int64_t stride) {
    const int64_t row = args.two_planes ? code_row / 2 : code_row;
    const int32_t first = WithoutExcess(args, sums[0], code_row);
    const float sum = args.two_planes
                          ? static_cast<float>(256.0 * first + WithoutExcess(args, sums[stride], code_row + 1))
                          : static_cast<float>(first);
    const float scale = args.row_scales[output] * args.scales[row];
    float value = sum * scale;
    if (args.bias != nullptr) value = value + args.bias[output];
    float& out = args.out[row * args.out_stride + output];
    out = args.add ? out + value : value;
  }

  // Unsigned arithmetic: with the bias of 128 a sum may exceed 32 bits, and removing the bias brings it back.
  static int32_t WithoutExcess(const PackedMatmulArgs& args, int32_t sum, int64_t code_row) {
    return static_cast<int32_t>(static_cast<uint32_t>(sum) - static_cast<uint32_t>(args.excess[code_row]));
  }
};
