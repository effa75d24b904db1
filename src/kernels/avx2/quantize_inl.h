// SPDX-License-Identifier: Apache-2.0
// What generic/quantize_inl.h wants of ymm registers, but for how codes are stored and summed up. Included by target
// files inside their unnamed namespace, after <immintrin.h>, kernels/packed.h and kernels/arguments.h.

struct Line {
  __m256i half[2];
};
using Sums = __m256i;

// The first n of 8 lanes.
inline __m256i FirstLanes(int64_t n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(n)), lanes);
}

inline __m256i Magnitude(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

uint32_t LargestBits(const float* x, int64_t n) {
  __m256i largest[4];
  for (__m256i& part : largest) part = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int64_t j = 0; j < 4; ++j) {
      largest[j] = _mm256_max_epu32(largest[j], Magnitude(_mm256_loadu_ps(x + i + 8 * j)));
    }
  }
  for (; i < n; i += 8) {
    largest[0] = _mm256_max_epu32(largest[0], Magnitude(_mm256_maskload_ps(x + i, FirstLanes(n - i))));
  }
  const __m256i all =
      _mm256_max_epu32(_mm256_max_epu32(largest[0], largest[1]), _mm256_max_epu32(largest[2], largest[3]));
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  for (int i1 = 1; i1 < 8; ++i1) lanes[0] = lanes[i1] > lanes[0] ? lanes[i1] : lanes[0];
  return lanes[0];
}

inline Line ZeroLine() { return {{_mm256_setzero_si256(), _mm256_setzero_si256()}}; }
inline Sums ZeroSums() { return _mm256_setzero_si256(); }

inline Sums AddCodes(Sums sums, __m256i first, __m256i second) {
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(ones, first), _mm256_maddubs_epi16(ones, second));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

inline uint32_t Total(Sums sums) {
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  uint32_t total = 0;
  for (const uint32_t lane : lanes) total += lane;
  return total;
}

// To nearest, ties to even, as the rounding mode is everywhere.
inline void Round(const float* x, int64_t n, float factor, __m256i* codes) {
  const __m256 factors = _mm256_set1_ps(factor);
  for (int64_t j = 0; j < 8; ++j) {
    const __m256 part =
        n == kGroupInputs ? _mm256_loadu_ps(x + 8 * j) : _mm256_maskload_ps(x + 8 * j, FirstLanes(n - 8 * j));
    codes[j] = _mm256_cvtps_epi32(_mm256_mul_ps(part, factors));
  }
}

// The packs work inside 128 bits: they leave dword k of vector j at dword 4 k + j.
inline Line Pack(const __m256i* codes) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  Line line;
  for (int64_t k = 0; k < 2; ++k) {
    const __m256i* c = codes + 4 * k;
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
    line.half[k] = _mm256_permutevar8x32_epi32(bytes, order);
  }
  return line;
}

inline Line ToCodes(const float* x, int64_t n, float factor) {
  __m256i codes[8];
  Round(x, n, factor, codes);
  return Pack(codes);
}

inline Line ToPlanes(const float* x, int64_t n, float factor, Line& low_line) {
  __m256i codes[8], low[8];
  Round(x, n, factor, codes);
  for (int64_t j = 0; j < 8; ++j) {
    const __m256i high = _mm256_srai_epi32(_mm256_add_epi32(codes[j], _mm256_set1_epi32(128)), 8);
    low[j] = _mm256_sub_epi32(codes[j], _mm256_slli_epi32(high, 8));
    codes[j] = high;
  }
  low_line = Pack(low);
  return Pack(codes);
}

inline void StoreHalves(int8_t* to, __m256i first, __m256i second) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), first);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), second);
}
