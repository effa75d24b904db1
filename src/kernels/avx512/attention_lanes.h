// SPDX-License-Identifier: Apache-2.0
// What attention needs beyond avx512/lanes.h: bf16 and how many columns fill the registers. How pairs of bf16 are
// multiplied is in avx512/attention_pairs.h or avx512/attention_pairs_fused.h, one of which comes next.

constexpr int64_t kTileColumns = 8;  // by two registers of positions or dimensions: 16 of 32 hold sums
constexpr int32_t kMaxBlocksAtOnce = 4;
constexpr int64_t HalvesAtOnce(int64_t) { return 2; }
// Blocks at once for at least four chains: a two-way dot product takes six cycles, and one can start in each (AMD Zen
// 4).
constexpr int32_t BlocksAtOnce(int64_t columns) { return columns == 1 ? 4 : columns == 2 ? 2 : 1; }
constexpr int64_t ChunksAtOnce(int64_t columns) { return columns <= 2 ? 8 : columns <= 4 ? 4 : 2; }

inline bool AnyLess(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ) != 0; }

// To the nearest bf16, ties to even, NaN stays NaN; as f32. Not vcvtneps2bf16, which flushes denormals.
inline Lanes RoundBf16(Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_blend_epi32(nan, rounded, quiet);
  return {_mm512_castsi512_ps(_mm512_and_si512(kept, _mm512_set1_epi32(static_cast<int>(0xffff0000U))))};
}
// Sixteen values of RoundBf16.
inline void StoreBf16(uint16_t* to, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(a.v), 16)));
}
inline void StoreF16(uint16_t* to, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

// from[at[i]] for lanes i < n, else 0.
inline Lanes Pick(const float* from, const int32_t* at, int64_t n) {
  const __mmask16 there = n >= 16 ? __mmask16{0xffff} : n > 0 ? FirstLanes(n) : __mmask16{0};
  const __m512i places = _mm512_maskz_loadu_epi32(there, at);
  return {_mm512_mask_i32gather_ps(_mm512_setzero_ps(), there, places, from, 4)};
}
// words[i] = words[sources[i]], 0 where that is not below 32, for i < 32.
inline void Rearrange(uint16_t* words, const uint8_t* sources) {
  const __m512i from = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sources)));
  const __mmask32 there = _mm512_cmplt_epu16_mask(from, _mm512_set1_epi16(32));
  _mm512_storeu_si512(words, _mm512_maskz_permutexvar_epi16(there, from, _mm512_loadu_si512(words)));
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
  static Wide Broadcast(const uint32_t* p, int64_t) {
    return {_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)))};
  }
  static Lanes MulAdd(Wide a, Wide b, Lanes sums) { return Fma(a, b, sums); }
};
// Stores 32 weights as ValueTile takes them. Returns sums plus the weights as they were rounded.
template <FloatType kType>
inline Lanes StoreWeights(uint32_t* to, Lanes low, Lanes high, Lanes sums) {
  Store(reinterpret_cast<float*>(to), low);
  Store(reinterpret_cast<float*>(to) + 16, high);
  return Add(sums, Add(low, high));
}
