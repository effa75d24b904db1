// SPDX-License-Identifier: Apache-2.0
// What attention needs beyond lanes_avx2.h: bf16 and how many columns fill the registers.

constexpr int64_t kTileColumns = 4;  // by eight positions or dimensions twice: 8 of 16 registers hold sums
constexpr int32_t kMaxBlocksAtOnce = 2;
constexpr int64_t HalvesAtOnce(int64_t columns) { return columns <= 2 ? 2 : 1; }
constexpr int32_t BlocksAtOnce(int64_t columns) { return columns == 1 ? 2 : 1; }
constexpr int64_t ChunksAtOnce(int64_t columns) { return columns == 1 ? 4 : columns == 2 ? 2 : 1; }

inline bool AnyLess(Lanes a, Lanes b) {
  const __m256 either =
      _mm256_or_ps(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ));
  return _mm256_movemask_ps(either) != 0;
}

inline __m256 RoundBf16Half(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
  const __m256 kept = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
  return _mm256_and_ps(kept, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}
// To the nearest bf16, ties to even, NaN stays NaN; as f32.
inline Lanes RoundBf16(Lanes a) { return {RoundBf16Half(a.low), RoundBf16Half(a.high)}; }
// Sixteen values of RoundBf16.
inline void StoreBf16(uint16_t* to, Lanes a) {
  const __m256i words = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(a.low), 16),
                                            _mm256_srli_epi32(_mm256_castps_si256(a.high), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(words, 0xD8));
}
inline void StoreF16(uint16_t* to, Lanes a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}

// A step of a chain: sums += a * b over kDims dimensions, or over kPositions positions.
template <FloatType kType>
struct Steps {
  using Wide = Lanes;
  static constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;  // of an element
  static constexpr int64_t kLaneBytes = kBytes;
  static constexpr int64_t kDims = 1;
  static constexpr int32_t kPositions = 1;
  static Wide Load(const uint8_t* p) { return LoadWide<kType>(p, 0); }
  static Wide Broadcast(const uint32_t* p) { return Set(__builtin_bit_cast(float, *p)); }
  static Lanes MulAdd(Wide a, Wide b, Lanes sums) { return Fma(a, b, sums); }
};
// The order of vdpbf16ps: odd members of the pairs first, then even ones.
template <>
struct Steps<FloatType::kBF16> {
  struct Wide {
    Lanes even, odd;
  };
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kLaneBytes = 4;
  static constexpr int64_t kDims = 2;
  static constexpr int32_t kPositions = 2;
  static __m256 Even(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static __m256 Odd(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  static Wide Load(const uint8_t* p) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
    return {{Even(low), Even(high)}, {Odd(low), Odd(high)}};
  }
  static Wide Broadcast(const uint32_t* p) {
    const __m256i pair = _mm256_set1_epi32(static_cast<int>(*p));
    return {{Even(pair), Even(pair)}, {Odd(pair), Odd(pair)}};
  }
  static Lanes MulAdd(const Wide& a, const Wide& b, Lanes sums) { return Fma(a.even, b.even, Fma(a.odd, b.odd, sums)); }
};

// 32 weights as ValueTile takes them; returns sums + these, as rounded.
template <FloatType kType>
inline Lanes StoreWeights(uint32_t* to, Lanes low, Lanes high, Lanes sums) {
  Store(reinterpret_cast<float*>(to), low);
  Store(reinterpret_cast<float*>(to) + 16, high);
  return Add(sums, Add(low, high));
}
template <>
inline Lanes StoreWeights<FloatType::kBF16>(uint32_t* to, Lanes low, Lanes high, Lanes sums) {
  using Step = Steps<FloatType::kBF16>;
  auto* words = reinterpret_cast<uint16_t*>(to);
  StoreBf16(words, RoundBf16(low));
  StoreBf16(words + 16, RoundBf16(high));
  const uint32_t ones = 0x3f803f80;
  return Step::MulAdd(Step::Load(reinterpret_cast<const uint8_t*>(to)), Step::Broadcast(&ones), sums);
}
