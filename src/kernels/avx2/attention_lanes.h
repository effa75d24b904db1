// SPDX-License-Identifier: Apache-2.0
// What attention needs beyond avx2/lanes.h: bf16 and how many columns fill the registers.

constexpr int64_t kTileColumns = 6;  // by two vectors of positions or dimensions: 12 of 16 registers hold sums
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
inline __m256i PackBf16(Lanes a) {
  const __m256i words = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(a.low), 16),
                                            _mm256_srli_epi32(_mm256_castps_si256(a.high), 16));
  return _mm256_permute4x64_epi64(words, 0xD8);
}
inline void StoreBf16(uint16_t* to, Lanes a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), PackBf16(a)); }
inline void StoreF16(uint16_t* to, Lanes a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}

// One step of a chain: sums += a * b over kDims dimensions (scores), or over kPositions positions (outputs).
template <FloatType kType>
struct Steps {
  using Wide = Lanes;
  static constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;  // of an element
  static constexpr int64_t kLaneBytes = kBytes;
  static constexpr int64_t kDims = 1;
  static constexpr int32_t kPositions = 1;
  static constexpr int64_t kParts = 1, kWords = 1;
  static Wide Load(const uint8_t* p, int64_t) { return LoadWide<kType>(p, 0); }
  static Wide Broadcast(const uint32_t* p, int64_t) { return Set(__builtin_bit_cast(float, *p)); }
  static Lanes MulAdd(Wide a, Wide b, Lanes sums) { return Fma(a, b, sums); }
};
// The order of vdpbf16ps: odd members of the pairs first, then even ones. Odd and even members are parts of their own,
// so that one part of the pairs fills two registers and twelve can hold sums. What is broadcast lies as f32.
template <>
struct Steps<FloatType::kBF16> {
  using Wide = Lanes;
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kLaneBytes = 4;
  static constexpr int64_t kDims = 2;
  static constexpr int32_t kPositions = 2;
  static constexpr int64_t kParts = 2, kWords = 2;
  static __m256 Member(__m256i pairs, int64_t part) {
    const __m256i odd = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    return _mm256_castsi256_ps(part == 0 ? _mm256_and_si256(pairs, odd) : _mm256_slli_epi32(pairs, 16));
  }
  static Wide Load(const uint8_t* p, int64_t part) {
    const auto* pairs = reinterpret_cast<const __m256i*>(p);
    return {Member(_mm256_loadu_si256(pairs), part), Member(_mm256_loadu_si256(pairs + 1), part)};
  }
  static Wide Broadcast(const uint32_t* p, int64_t part) { return Set(__builtin_bit_cast(float, p[1 - part])); }
  static Lanes MulAdd(Wide a, Wide b, Lanes sums) { return Fma(a, b, sums); }
};

// Stores 32 weights as ValueTile takes them. Returns sums plus the weights as they were rounded.
template <FloatType kType>
inline Lanes StoreWeights(uint32_t* to, Lanes low, Lanes high, Lanes sums) {
  Store(reinterpret_cast<float*>(to), low);
  Store(reinterpret_cast<float*>(to) + 16, high);
  return Add(sums, Add(low, high));
}
template <>
inline Lanes StoreWeights<FloatType::kBF16>(uint32_t* to, Lanes low, Lanes high, Lanes sums) {
  using Step = Steps<FloatType::kBF16>;
  const Lanes halves[2] = {RoundBf16(low), RoundBf16(high)};
  Store(reinterpret_cast<float*>(to), halves[0]);
  Store(reinterpret_cast<float*>(to) + 16, halves[1]);
  const __m256i pairs[2] = {PackBf16(halves[0]), PackBf16(halves[1])};
  const Lanes odd{Step::Member(pairs[0], 0), Step::Member(pairs[1], 0)};
  const Lanes even{Step::Member(pairs[0], 1), Step::Member(pairs[1], 1)};
  return Add(Add(sums, odd), even);
}

// Sixteen dimensions of a query from d on.
template <FloatType kType>
inline void StoreQuery(uint32_t* to, int64_t d, Lanes x) {
  Store(reinterpret_cast<float*>(to) + d, kType == FloatType::kBF16 ? RoundBf16(x) : x);
}
