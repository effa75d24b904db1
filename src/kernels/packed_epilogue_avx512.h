// SPDX-License-Identifier: Apache-2.0
// From a panel's integer sums to its outputs, sixteen outputs in one zmm: for every target with AVX-512. Included by
// target files inside their unnamed namespace, after <immintrin.h>, kernels/arguments.h and kernels/packed.h.

// 256 high + low is exact in double, so that only its conversion to float rounds.
inline __m512 AddPlanes(__m512i high, __m512i low) {
  const __m512d factor = _mm512_set1_pd(256.0);
  const __m512d first = _mm512_fmadd_pd(factor, _mm512_cvtepi32_pd(_mm512_castsi512_si256(high)),
                                        _mm512_cvtepi32_pd(_mm512_castsi512_si256(low)));
  const __m512d second = _mm512_fmadd_pd(factor, _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(high, 1)),
                                         _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(low, 1)));
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(first)), _mm512_cvtpd_ps(second), 1);
}

constexpr int64_t kFinishAhead = 12;  // rows whose outputs come to L1 while others are finished

// sums: [code_rows][16], each too large by bias * sums128[r] (1 where weights went in with their bias of 128, else 0).
template <int kBias>
inline void FinishPanel(const PackedMatmulArgs& args, int64_t panel, const int32_t* sums) {
  const int64_t first = panel * kPanelOutputs, left = args.outputs - first;
  const auto mask = static_cast<__mmask16>(left < kPanelOutputs ? (1U << left) - 1U : 0xffffU);
  const __m512 row_scales = _mm512_loadu_ps(args.row_scales + first);
  const __m512 bias = args.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, args.bias + first);
  const int64_t planes = args.two_planes ? 2 : 1, rows = args.code_rows / planes;
  float* out = args.out + first;
  for (int64_t r = 0; r < rows; ++r, out += args.out_stride) {
    if (r + kFinishAhead < rows) {
      _mm_prefetch(reinterpret_cast<const char*>(out + kFinishAhead * args.out_stride), _MM_HINT_T0);
    }
    const auto sum = [&](int64_t code_row) {
      const __m512i raw = _mm512_loadu_si512(sums + code_row * kPanelOutputs);
      return kBias == 0 ? raw : _mm512_sub_epi32(raw, _mm512_set1_epi32(args.sums128[code_row]));
    };
    const __m512 total = args.two_planes ? AddPlanes(sum(2 * r), sum(2 * r + 1)) : _mm512_cvtepi32_ps(sum(r));
    __m512 value = _mm512_mul_ps(total, _mm512_mul_ps(row_scales, _mm512_set1_ps(args.scales[r])));
    if (args.bias != nullptr) value = _mm512_add_ps(value, bias);
    if (args.add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value);
    _mm512_mask_storeu_ps(out, mask, value);
  }
}
