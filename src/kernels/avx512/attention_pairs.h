// SPDX-License-Identifier: Apache-2.0
// Pairs of bf16 by two-way dot products. Included inside an unnamed namespace, after avx512/attention_lanes.h.

// vdpbf16ps: sums = fma(even, even, fma(odd, odd, sums)), with denormals flushed to zero. Intel's manual says so, and
// it was checked on Zen 4 with 12.8 M random operands.
template <>
struct Steps<FloatType::kBF16> {
  using Wide = __m512i;
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kLaneBytes = 4;
  static constexpr int64_t kDims = 2;
  static constexpr int32_t kPositions = 2;
  static constexpr int64_t kParts = 1, kWords = 1;
  // One load for all columns. Without the asm GCC 12 loads the vector anew for each of up to three columns, and Zen 4
  // loads one vector a cycle. (3,480 -> 2,900 cycles with 3 rows and 100 positions of a head of 64 dimensions.)
  static Wide Load(const uint8_t* p, int64_t) {
    Wide wide = _mm512_loadu_si512(p);
    asm("" : "+v"(wide));
    return wide;
  }
  static Wide Broadcast(const uint32_t* p, int64_t) { return _mm512_set1_epi32(static_cast<int>(*p)); }
  static Lanes MulAdd(Wide a, Wide b, Lanes sums) {
    return {_mm512_dpbf16_ps(sums.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
};

template <>
inline Lanes StoreWeights<FloatType::kBF16>(uint32_t* to, Lanes low, Lanes high, Lanes sums) {
  const __m512i pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v));  // no denormals here
  _mm512_storeu_si512(to, pairs);
  return Steps<FloatType::kBF16>::MulAdd(pairs, _mm512_set1_epi32(0x3f803f80), sums);
}

// 32 values to the nearest bf16, as tiles take them: denormals are zero.
inline void StoreForTiles(uint16_t* to, Lanes low, Lanes high) {
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v)));
}

// Sixteen dimensions of a query from d on.
template <FloatType kType>
inline void StoreQuery(uint32_t* to, int64_t d, Lanes x) {
  if (kType == FloatType::kBF16) {
    StoreBf16(reinterpret_cast<uint16_t*>(to) + d, RoundBf16(x));
  } else {
    Store(reinterpret_cast<float*>(to) + d, x);
  }
}
