// SPDX-License-Identifier: Apache-2.0
// Expansion and epilogue of the tile matmul by AVX-512. Included inside an unnamed namespace.

struct Avx512Vectors {
  // Two or four lines of codes, with two table numbers each, to [kLines][2 halves][64] weights. VPERMB looks at six
  // bits of an index; the upper two choose among four equal copies of a table, so the nibbles need no mask. 3
  // instructions and 2 stores for 128 weights; VPSHUFB would take 5. Numbers are taken out of one word, since loads are
  // scarcer than arithmetic here, and both halves of a line are stored side by side (const tables, Granite Rapids: 21.5
  // -> 18.8 ns a step of 32 lines).
  template <int kLines>
  HYDRANT_INLINE static void Expand(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary,
                                    uint8_t* to) {
    uint64_t numbers = 0;
    __builtin_memcpy(&numbers, tables, 2 * kLines);
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line) {
      const __m512i codes = _mm512_load_si512(lines + line * kLineBytes);
      const __m512i low = Table(dictionary, numbers, 2 * line), high = Table(dictionary, numbers, 2 * line + 1);
      _mm512_store_si512(to + 2 * line * kLineBytes, _mm512_permutexvar_epi8(codes, low));
      _mm512_store_si512(to + (2 * line + 1) * kLineBytes, _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), high));
    }
  }

  static void Finish(const PackedMatmulArgs& args, int64_t panel, const RowBlock& block, const int32_t* sums) {
    __m512i rows[kTileRows];
    if (block.rows <= 2) {
      for (int64_t r = 0; r < block.rows; ++r) rows[r] = Column(sums, r);
    } else {
      for (int64_t o = 0; o < kPanelOutputs; ++o) rows[o] = _mm512_load_si512(sums + o * kTileRows);
      TransposeDwords(rows);
    }
    const int64_t output = panel * kPanelOutputs, rest = args.outputs - output;
    const auto mask = static_cast<__mmask16>(rest < kPanelOutputs ? (1U << rest) - 1U : 0xffffU);
    const __m512 row_scales = _mm512_loadu_ps(args.row_scales + output);
    if (block.rows == kTileRows && !args.two_planes) {
      // Unrolled, so that no row goes through memory: 40 ns instead of 60 (AMD Zen 4); without masks no faster.
#pragma GCC unroll 16
      for (int64_t r = 0; r < kTileRows; ++r) {
        const __m512i bias = _mm512_set1_epi32(args.excess[block.first + r]);
        StoreRow(args, block.first + r, output, mask, row_scales, _mm512_cvtepi32_ps(_mm512_sub_epi32(rows[r], bias)));
      }
      return;
    }
    for (int64_t r = 0; r < block.rows; ++r) {
      rows[r] = _mm512_sub_epi32(rows[r], _mm512_set1_epi32(args.excess[block.first + r]));
    }
    if (args.two_planes) {
      for (int64_t r = 0; r < block.rows; r += 2) {
        StoreRow(args, (block.first + r) / 2, output, mask, row_scales, Combine(rows[r], rows[r + 1]));
      }
    } else {
      for (int64_t r = 0; r < block.rows; ++r) {
        StoreRow(args, block.first + r, output, mask, row_scales, _mm512_cvtepi32_ps(rows[r]));
      }
    }
  }

 private:
  // The table whose number is byte `at` of eight: its offset is 16 times that, a rotation and a mask.
  HYDRANT_INLINE static __m512i Table(const uint8_t* dictionary, uint64_t numbers, int at) {
    static_assert(kTableEntries == 16);
    const int by = (8 * at + 60) % 64;
    const uint64_t offset = (numbers >> by | numbers << (64 - by)) & 0xff0;
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(dictionary + offset)));
  }

  // One code row of 16 outputs: cheaper for one or two than to transpose 16.
  static __m512i Column(const int32_t* sums, int64_t r) {
    const __m512i places =
        _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
    return _mm512_i32gather_epi32(places, sums + r, 4);
  }

  // f32(256.0 * high + low): exact in double.
  static __m512 Combine(__m512i high, __m512i low) {
    const __m512d scale = _mm512_set1_pd(256.0);
    __m256 halves[2];
    for (int half = 0; half < 2; ++half) {
      const __m256i h = half == 0 ? _mm512_castsi512_si256(high) : _mm512_extracti32x8_epi32(high, 1);
      const __m256i l = half == 0 ? _mm512_castsi512_si256(low) : _mm512_extracti32x8_epi32(low, 1);
      halves[half] = _mm512_cvtpd_ps(_mm512_add_pd(_mm512_mul_pd(scale, _mm512_cvtepi32_pd(h)), _mm512_cvtepi32_pd(l)));
    }
    return _mm512_insertf32x8(_mm512_castps256_ps512(halves[0]), halves[1], 1);
  }

  HYDRANT_INLINE static void StoreRow(const PackedMatmulArgs& args, int64_t row, int64_t output, __mmask16 mask,
                                      __m512 row_scales, __m512 sums) {
    const __m512 scales = _mm512_mul_ps(row_scales, _mm512_set1_ps(args.scales[row]));
    __m512 value = _mm512_mul_ps(sums, scales);
    if (args.bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, args.bias + output));
    float* out = args.out + row * args.out_stride + output;
    if (args.add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value);
    _mm512_mask_storeu_ps(out, mask, value);
  }
};
