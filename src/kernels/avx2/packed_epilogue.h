// SPDX-License-Identifier: Apache-2.0
// From a panel's integer sums to its outputs, eight outputs in one ymm. Included by target files inside their unnamed
// namespace, after <immintrin.h>, kernels/arguments.h and kernels/packed.h.

// Eight sums of a code row, exact. `sums`: [code_rows][16], each too large by excess[code_row].
inline __m256i LoadSums(const PackedMatmulArgs& args, const int32_t* sums, int64_t code_row) {
  const auto* at = reinterpret_cast<const __m256i*>(sums + code_row * kPanelOutputs);
  return _mm256_sub_epi32(_mm256_loadu_si256(at), _mm256_set1_epi32(args.excess[code_row]));
}

// 256 high + low is exact in double, so that only its conversion to float rounds.
inline __m128 AddPlanes(__m128i high, __m128i low) {
  return _mm256_cvtpd_ps(_mm256_fmadd_pd(_mm256_set1_pd(256.0), _mm256_cvtepi32_pd(high), _mm256_cvtepi32_pd(low)));
}
inline __m256 AddPlanes(__m256i high, __m256i low) {
  const __m128 first = AddPlanes(_mm256_castsi256_si128(high), _mm256_castsi256_si128(low));
  const __m128 second = AddPlanes(_mm256_extracti128_si256(high, 1), _mm256_extracti128_si256(low, 1));
  return _mm256_insertf128_ps(_mm256_castps128_ps256(first), second, 1);
}

// Loads or stores only some of eight outputs. (Not by vmaskmovps: AMD before Zen 4 stores by it in microcode, once in
// 12 cycles or more.)
inline __m256 LoadSome(const float* from, int64_t count) {
  if (count == 8) return _mm256_loadu_ps(from);
  alignas(32) float copy[8] = {};
  for (int64_t i = 0; i < count; ++i) copy[i] = from[i];
  return _mm256_load_ps(copy);
}
inline void StoreSome(float* to, __m256 values, int64_t count) {
  if (count == 8) return _mm256_storeu_ps(to, values);
  alignas(32) float copy[8];
  _mm256_store_ps(copy, values);
  for (int64_t i = 0; i < count; ++i) to[i] = copy[i];
}

// sums: [code_rows][16].
inline void FinishPanel(const PackedMatmulArgs& args, int64_t panel, const int32_t* sums) {
  const int64_t planes = args.two_planes ? 2 : 1, rows = args.code_rows / planes;
  for (int64_t half = 0; half < kPanelOutputs && panel * kPanelOutputs + half < args.outputs; half += 8) {
    const int64_t first = panel * kPanelOutputs + half, left = args.outputs - first, count = left < 8 ? left : 8;
    const __m256 row_scales = _mm256_loadu_ps(args.row_scales + first);
    const __m256 bias = args.bias == nullptr ? _mm256_setzero_ps() : LoadSome(args.bias + first, count);
    float* out = args.out + first;
    for (int64_t r = 0; r < rows; ++r, out += args.out_stride) {
      const __m256i sum = LoadSums(args, sums + half, r * planes);
      const __m256 total =
          args.two_planes ? AddPlanes(sum, LoadSums(args, sums + half, 2 * r + 1)) : _mm256_cvtepi32_ps(sum);
      __m256 value = _mm256_mul_ps(total, _mm256_mul_ps(row_scales, _mm256_set1_ps(args.scales[r])));
      if (args.bias != nullptr) value = _mm256_add_ps(value, bias);
      if (args.add) value = _mm256_add_ps(LoadSome(out, count), value);
      StoreSome(out, value, count);
    }
  }
}
