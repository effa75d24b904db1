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

// Makes a panel's sixteen outputs of any row. It keeps what it needs of the call: for all that a compiler knows, a
// store to outputs may change the call's arguments, which it would then read again for every row.
class PanelOutputs {
 public:
  // Rows from `first_row` on.
  PanelOutputs(const PackedMatmulArgs& args, int64_t panel, int64_t first_row = 0)
      : out_(args.out + panel * kPanelOutputs + first_row * args.out_stride),
        stride_(args.out_stride),
        scales_(args.scales + first_row),
        has_bias_(args.bias != nullptr),
        add_(args.add) {
    const int64_t first = panel * kPanelOutputs, left = args.outputs - first;
    mask_ = static_cast<__mmask16>(left < kPanelOutputs ? (1U << left) - 1U : 0xffffU);
    row_scales_ = _mm512_loadu_ps(args.row_scales + first);
    bias_ = has_bias_ ? _mm512_maskz_loadu_ps(mask_, args.bias + first) : _mm512_setzero_ps();
  }

  const float* of_row(int64_t r) const { return out_ + r * stride_; }

  // total: the row's sums in f32.
  [[gnu::always_inline]] void Finish(int64_t r, __m512 total) const {
    float* out = out_ + r * stride_;
    __m512 value = _mm512_mul_ps(total, _mm512_mul_ps(row_scales_, _mm512_set1_ps(scales_[r])));
    if (has_bias_) value = _mm512_add_ps(value, bias_);
    if (add_) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask_, out), value);
    _mm512_mask_storeu_ps(out, mask_, value);
  }

 private:
  float* out_;
  int64_t stride_;
  const float* scales_;
  bool has_bias_, add_;
  __mmask16 mask_;
  __m512 row_scales_, bias_;
};

// Sums of a code row are too large by its `excess`, because weights went in with their bias of 128.
inline __m512i WithoutExcess(__m512i sums, int32_t excess) { return _mm512_sub_epi32(sums, _mm512_set1_epi32(excess)); }

// sums: [code_rows][16]; excess: the call's.
inline __m512i SumOf(const int32_t* excess, const int32_t* sums, int64_t code_row) {
  return WithoutExcess(_mm512_load_si512(sums + code_row * kPanelOutputs), excess[code_row]);
}

constexpr int64_t kFinishAhead = 12;  // rows whose outputs come to L1 while others are finished

// sums: as SumOf takes them.
inline void FinishPanel(const PackedMatmulArgs& args, int64_t panel, const int32_t* sums) {
  const PanelOutputs outputs(args, panel);
  const int32_t* excess = args.excess;
  const auto finish = [&](int64_t rows, const auto& total) __attribute__((always_inline)) {
    for (int64_t r = 0; r < rows; ++r) {
      if (r + kFinishAhead < rows) {
        _mm_prefetch(reinterpret_cast<const char*>(outputs.of_row(r + kFinishAhead)), _MM_HINT_T0);
      }
      outputs.Finish(r, total(r));
    }
  };
  if (args.two_planes) {
    finish(args.code_rows / 2,
           [&](int64_t r) { return AddPlanes(SumOf(excess, sums, 2 * r), SumOf(excess, sums, 2 * r + 1)); });
  } else {
    finish(args.code_rows, [&](int64_t r) { return _mm512_cvtepi32_ps(SumOf(excess, sums, r)); });
  }
}
