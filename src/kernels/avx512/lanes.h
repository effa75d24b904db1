// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 lanes in one zmm. Included by avx512 files inside their unnamed namespace, after <immintrin.h>.

struct Lanes {
  __m512 v;
};

inline __mmask16 FirstLanes(int64_t n) { return static_cast<__mmask16>((1U << n) - 1U); }

inline Lanes Set(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Lanes LoadPart(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(FirstLanes(n), p)}; }
inline void Store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline void StorePart(float* p, Lanes a, int64_t n) { _mm512_mask_storeu_ps(p, FirstLanes(n), a.v); }

inline Lanes Add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes Sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes Mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes Div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes Fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes Max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }  // a > b ? a : b
// a < b ? x : y, false for NaN.
inline Lanes SelectLess(Lanes a, Lanes b, Lanes x, Lanes y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
// a < b ? x * y : x, false for NaN.
inline Lanes MulWhereLess(Lanes a, Lanes b, Lanes x, Lanes y) {
  return {_mm512_mask_mul_ps(x.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), x.v, y.v)};
}
inline Lanes NegativeMagnitude(Lanes a) {
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(INT32_MIN)))};
}
// a < b ? 0 : p * 2^k, false for NaN; k: an integer from -126 to 127 that was rounded by adding 1.5 * 2^23, which gave
// `shifted`. One instruction here, which needs no clean-up for other k.
inline Lanes ScaleUnlessLess(Lanes a, Lanes b, Lanes p, Lanes k, Lanes /*shifted*/) {
  return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ), p.v, k.v)};
}

template <FloatType kType>
inline Lanes Widen(__m256i halves) {
  if (kType == FloatType::kF16) return {_mm512_cvtph_ps(halves)};
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}
// Elements index .. index + 15 of an array of kType.
template <FloatType kType>
inline Lanes LoadWide(const uint8_t* p, int64_t index) {
  if (kType == FloatType::kF32) return Load(reinterpret_cast<const float*>(p + 4 * index));
  return Widen<kType>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2 * index)));
}
template <FloatType kType>
inline Lanes LoadWidePart(const uint8_t* p, int64_t index, int64_t n) {
  if (kType == FloatType::kF32) return LoadPart(reinterpret_cast<const float*>(p + 4 * index), n);
  return Widen<kType>(_mm256_maskz_loadu_epi16(FirstLanes(n), p + 2 * index));
}

// The tree 8-4-2-1 over the lanes.
inline float TreeSum(Lanes a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float TreeMax(Lanes a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
