// SPDX-License-Identifier: Apache-2.0
// Pairs of bf16 by two fused multiply-adds, in the order of vdpbf16ps: odd members first. For processors that start a
// vdpbf16ps every other cycle and two fused multiply-adds in each (CpuFeatures::slow_bf16_dots). Included inside an
// unnamed namespace, after avx512/attention_lanes.h.
//
// What all lanes multiply by lies as f32. Denormals are not flushed, which shows only in an output below 1e-37.

template <>
struct Steps<FloatType::kBF16> {
  struct Wide {
    Lanes odd, even;
  };
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kLaneBytes = 4;
  static constexpr int64_t kDims = 2;
  static constexpr int32_t kPositions = 2;
  static constexpr int64_t kParts = 1, kWords = 2;
  static Wide Members(__m512i pairs) {
    const __m512i odd = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
    return {{_mm512_castsi512_ps(odd)}, {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))}};
  }
  static Wide Load(const uint8_t* p, int64_t) { return Members(_mm512_loadu_si512(p)); }
  static Wide Broadcast(const uint32_t* p, int64_t) {
    return {Set(__builtin_bit_cast(float, p[1])), Set(__builtin_bit_cast(float, p[0]))};
  }
  static Lanes MulAdd(const Wide& a, const Wide& b, Lanes sums) { return Fma(a.even, b.even, Fma(a.odd, b.odd, sums)); }
};

template <>
inline Lanes StoreWeights<FloatType::kBF16>(uint32_t* to, Lanes low, Lanes high, Lanes sums) {
  const __m512i pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v));  // no denormals here
  Store(reinterpret_cast<float*>(to), Widen<FloatType::kBF16>(_mm512_castsi512_si256(pairs)));
  Store(reinterpret_cast<float*>(to) + 16, Widen<FloatType::kBF16>(_mm512_extracti64x4_epi64(pairs, 1)));
  const auto both = Steps<FloatType::kBF16>::Members(pairs);
  return Add(Add(sums, both.odd), both.even);
}

// Sixteen dimensions of a query from d on.
template <FloatType kType>
inline void StoreQuery(uint32_t* to, int64_t d, Lanes x) {
  Store(reinterpret_cast<float*>(to) + d, kType == FloatType::kBF16 ? RoundBf16(x) : x);
}
