// SPDX-License-Identifier: Apache-2.0
// Expansion and epilogue of the tile matmul by AVX-512. Included inside an unnamed namespace, after
// avx512/packed_epilogue.h and avx512/transpose.h.

struct Avx512Vectors {
  // Expands two or four lines of codes, with two table numbers each, to [kLines][2 halves][64] weights, with 3
  // instructions and 2 stores for 128 weights (VPSHUFB would take 5). VPERMB looks at six bits of an index: the upper
  // two choose among four equal copies of a table, so nibbles need no mask. Bandwidth to L1 is scarcer than arithmetic
  // here (tiles.md, "What 64 rows take"). So the numbers are taken out of one word, tables are loaded once for the two
  // lines that share them, and both halves of a line are stored side by side. (With const tables: 21.5 -> 18.8 ns for a
  // step of 32 lines, Granite Rapids.)
  template <int kLines>
  HYDRANT_INLINE static void Expand(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary,
                                    uint8_t* to) {
    static_assert(kLines % 2 == 0);
    uint64_t numbers = 0;
    __builtin_memcpy(&numbers, tables, 2 * kLines);
#pragma GCC unroll 2
    for (int pair = 0; pair < kLines; pair += 2) {
      const __m512i low = Table(dictionary, numbers, 2 * pair), high = Table(dictionary, numbers, 2 * pair + 1);
#pragma GCC unroll 2
      for (int line = pair; line < pair + 2; ++line) {
        const __m512i codes = _mm512_load_si512(lines + line * kLineBytes);
        _mm512_store_si512(to + 2 * line * kLineBytes, _mm512_permutexvar_epi8(codes, low));
        _mm512_store_si512(to + (2 * line + 1) * kLineBytes,
                           _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), high));
      }
    }
  }

  // Sums of whole blocks become outputs in registers, without passing through memory. (22 -> 18.5 ms of both threads by
  // samples of the clock; Intel, 7B w4a8, 64 rows.)
  static void Finish(const PackedMatmulArgs& args, int64_t panel, const RowBlock& block, const int32_t* sums) {
    if (block.rows == kTileRows && !args.two_planes) {
      const int32_t* excess = args.excess + block.first;
      const PanelOutputs outputs(args, panel, block.first);
      __m512i columns[kTileRows];
#pragma GCC unroll 16
      for (int64_t o = 0; o < kPanelOutputs; ++o) columns[o] = _mm512_load_si512(sums + o * kTileRows);
      const auto finish = [&](int r, __m512i sum) __attribute__((always_inline)) {
        outputs.Finish(r, _mm512_cvtepi32_ps(WithoutExcess(sum, excess[r])));
      };
      ForColumns(columns, finish);
    } else {
      FinishSome(args, panel, block, sums);
    }
  }

  // sums: [code_rows][16 outputs]
  static void FinishPanel(const PackedMatmulArgs& args, int64_t panel, const int32_t* sums) {
    kernels::FinishPanel(args, panel, sums);
  }

 private:
  // Blocks of fewer rows, or of two planes. Not inlined, so that Finish does not keep registers for it.
  [[gnu::noinline]] static void FinishSome(const PackedMatmulArgs& args, int64_t panel, const RowBlock& block,
                                           const int32_t* sums) {
    const PanelOutputs outputs(args, panel, block.first / (args.two_planes ? 2 : 1));
    const int32_t* excess = args.excess + block.first;
    __m512i rows[kTileRows];
    if (block.rows > 2) {
      for (int64_t o = 0; o < kPanelOutputs; ++o) rows[o] = _mm512_load_si512(sums + o * kTileRows);
      TransposeDwords(rows);
    }
    for (int64_t r = 0; r < block.rows; ++r) {
      rows[r] = WithoutExcess(block.rows > 2 ? rows[r] : Column(sums, r), excess[r]);
    }
    for (int64_t r = 0; r < block.rows; r += args.two_planes ? 2 : 1) {
      if (args.two_planes) {
        outputs.Finish(r / 2, AddPlanes(rows[r], rows[r + 1]));
      } else {
        outputs.Finish(r, _mm512_cvtepi32_ps(rows[r]));
      }
    }
  }

  // The table whose number is byte `at` of `numbers`. Its offset is 16 times that number: a rotation and a mask.
  HYDRANT_INLINE static __m512i Table(const uint8_t* dictionary, uint64_t numbers, int at) {
    static_assert(kTableEntries == 16);
    const int by = (8 * at + 60) % 64;
    const uint64_t offset = (numbers >> by | numbers << (64 - by)) & 0xff0;
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(dictionary + offset)));
  }

  // The sums of one code row and 16 outputs. For one or two rows that is cheaper than to transpose 16.
  static __m512i Column(const int32_t* sums, int64_t r) {
    const __m512i places =
        _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
    return _mm512_i32gather_epi32(places, sums + r, 4);
  }
};
