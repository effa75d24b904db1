// SPDX-License-Identifier: Apache-2.0
// From a panel's integer sums to its outputs, eight outputs in one ymm. Included by target files inside their unnamed
// namespace, after <immintrin.h>, kernels/arguments.h and kernels/packed.h.

inline __m256i LoadSums(const int32_t* sums) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums)); }

// 256 high + low is exact in double, so that only its conversion to float rounds.
inline __m256 AddPlanes(const int32_t* high, const int32_t* low) {
  const __m256d factor = _mm256_set1_pd(256.0);
  __m128 parts[2];
  for (int64_t i = 0; i < 2; ++i) {
    const __m256d h = _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high + 4 * i)));
    const __m256d l = _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low + 4 * i)));
    parts[i] = _mm256_cvtpd_ps(_mm256_fmadd_pd(factor, h, l));
  }
  return _mm256_insertf128_ps(_mm256_castps128_ps256(parts[0]), parts[1], 1);
}

// sums: [code_rows][16].
inline void FinishPanel(const PackedMatmulArgs& args, int64_t panel, const int32_t* sums) {
  const int64_t planes = args.two_planes ? 2 : 1, rows = args.code_rows / planes;
  for (int64_t half = 0; half < kPanelOutputs && panel * kPanelOutputs + half < args.outputs; half += 8) {
    const int64_t first = panel * kPanelOutputs + half, left = args.outputs - first;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(left < 8 ? left : 8)), lanes);
    const __m256 row_scales = _mm256_loadu_ps(args.row_scales + first);
    const __m256 bias = args.bias == nullptr ? _mm256_setzero_ps() : _mm256_maskload_ps(args.bias + first, mask);
    float* out = args.out + first;
    for (int64_t r = 0; r < rows; ++r, out += args.out_stride) {
      const int32_t* sum = sums + r * planes * kPanelOutputs + half;
      const __m256 total = args.two_planes ? AddPlanes(sum, sum + kPanelOutputs) : _mm256_cvtepi32_ps(LoadSums(sum));
      __m256 value = _mm256_mul_ps(total, _mm256_mul_ps(row_scales, _mm256_set1_ps(args.scales[r])));
      if (args.bias != nullptr) value = _mm256_add_ps(value, bias);
      if (args.add) value = _mm256_add_ps(_mm256_maskload_ps(out, mask), value);
      _mm256_maskstore_ps(out, mask, value);
    }
  }
}
