// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 lanes in two ymm. Included by avx2 files inside their unnamed namespace, after <immintrin.h>.

struct Lanes {
  __m256 low, high;  // lanes 0-7, 8-15
};

inline Lanes Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
inline Lanes LoadPart(const float* p, int64_t n) {
  alignas(32) float copy[16] = {};
  for (int64_t i = 0; i < n; ++i) copy[i] = p[i];
  return Load(copy);
}
inline void StorePart(float* p, Lanes a, int64_t n) {
  alignas(32) float copy[16];
  Store(copy, a);
  for (int64_t i = 0; i < n; ++i) p[i] = copy[i];
}

inline Lanes Add(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Lanes Sub(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Lanes Mul(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Lanes Div(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Lanes Fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
// a > b ? a : b
inline Lanes Max(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
// a < b ? x : y, false for NaN.
inline Lanes SelectLess(Lanes a, Lanes b, Lanes x, Lanes y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
// a < b ? x * y : x, false for NaN.
inline Lanes MulWhereLess(Lanes a, Lanes b, Lanes x, Lanes y) { return SelectLess(a, b, Mul(x, y), x); }
inline Lanes NegativeMagnitude(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(a.low, sign), _mm256_or_ps(a.high, sign)};
}
inline __m256 PowerOfTwoHalf(__m256 shifted) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000)));
}
// a < b ? 0 : p * 2^k, false for NaN; k: an integer from -126 to 127 that was rounded by adding 1.5 * 2^23, which gave
// `shifted`: its low bits hold k.
inline Lanes ScaleUnlessLess(Lanes a, Lanes b, Lanes p, Lanes /*k*/, Lanes shifted) {
  return SelectLess(a, b, Set(0.0F), Mul(p, {PowerOfTwoHalf(shifted.low), PowerOfTwoHalf(shifted.high)}));
}

template <FloatType kType>
inline __m256 Widen(__m128i halves) {
  if (kType == FloatType::kF16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
// Elements index .. index + 15 of an array of kType.
template <FloatType kType>
inline Lanes LoadWide(const uint8_t* p, int64_t index) {
  if (kType == FloatType::kF32) return Load(reinterpret_cast<const float*>(p + 4 * index));
  const auto* halves = reinterpret_cast<const __m128i*>(p + 2 * index);
  return {Widen<kType>(_mm_loadu_si128(halves)), Widen<kType>(_mm_loadu_si128(halves + 1))};
}
template <FloatType kType>
inline Lanes LoadWidePart(const uint8_t* p, int64_t index, int64_t n) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  alignas(32) uint8_t copy[16 * kBytes] = {};
  __builtin_memcpy(copy, p + kBytes * index, static_cast<uint64_t>(n * kBytes));
  return LoadWide<kType>(copy, 0);
}

// The tree 8-4-2-1 over the lanes.
inline float TreeSum(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float TreeMax(Lanes a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
