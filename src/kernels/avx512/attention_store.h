// SPDX-License-Identifier: Apache-2.0
// Writing rows of bf16 that lie side by side in a block, as a tree's and a prompt's rows mostly do. Included inside
// each target's unnamed namespace, after avx512/attention_lanes.h and avx512/transpose.h.

// For StoreKvKernel (generic/attention_store_inl.h).
struct SixteenRows {
  static constexpr int64_t kRows = 16;

  // Stores the keys of `rows` rows from k on. Sixteen pairs of dimensions of each row become sixteen lines, one place
  // for each row. Row by row, a key of 128 dimensions would be 64 stores of four bytes.
  static void StoreKeys(const float* k, int64_t stride, int64_t rows, int64_t head_dim, uint8_t* to) {
    const __mmask16 places = FirstLanes(rows);
    for (int64_t d = 0; d < head_dim; d += 32) {
      __m512i pairs[kRows];
      for (int64_t r = 0; r < kRows; ++r) {
        pairs[r] = r < rows ? RoundPairs(k + r * stride + d, head_dim - d) : _mm512_setzero_si512();
      }
      TransposeDwords(pairs);
      for (int64_t i = 0; i < 16 && d + 2 * i < head_dim; ++i) {
        _mm512_mask_storeu_epi32(to + (d / 2 + i) * kBlockPositions * 4, places, pairs[i]);
      }
    }
  }

  // Stores the values of two rows that share pairs.
  static void StoreValues(const float* even, const float* odd, int64_t head_dim, uint8_t* to) {
    for (int64_t d = 0; d < head_dim; d += 16) {
      const __m512i low = Round(even + d, head_dim - d), high = Round(odd + d, head_dim - d);
      const __mmask16 there = FirstLanes(head_dim - d < 16 ? head_dim - d : 16);
      _mm512_mask_storeu_epi32(to + 4 * d, there, _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
    }
  }

 private:
  // Rounds 16 dimensions, of which the first n exist, to bf16 in the upper halves.
  static __m512i Round(const float* from, int64_t n) {
    const Lanes x = n >= 16 ? Load(from) : n > 0 ? LoadPart(from, n) : Set(0.0F);
    return _mm512_castps_si512(RoundBf16(x).v);
  }
  // Rounds 32 dimensions to pairs of bf16.
  static __m512i RoundPairs(const float* from, int64_t n) {
    const __m512i low = _mm512_srli_epi32(Round(from, n), 16), high = _mm512_srli_epi32(Round(from + 16, n - 16), 16);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low)), _mm512_cvtepi32_epi16(high), 1);
  }
};
