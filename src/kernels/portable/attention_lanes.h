// SPDX-License-Identifier: Apache-2.0
// What attention needs beyond portable/lanes.h: bf16.

constexpr int64_t kTileColumns = 2;
constexpr int32_t kMaxBlocksAtOnce = 2;
constexpr int64_t HalvesAtOnce(int64_t) { return 1; }
constexpr int32_t BlocksAtOnce(int64_t) { return 1; }
constexpr int64_t ChunksAtOnce(int64_t) { return 1; }

inline bool AnyLess(const Lanes& a, const Lanes& b) {
  bool any = false;
  for (int i = 0; i < 16; ++i) any = any || a.v[i] < b.v[i];
  return any;
}

inline uint16_t Bf16Bits(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
// To the nearest bf16, ties to even, NaN stays NaN; as f32.
inline Lanes RoundBf16(const Lanes& a) {
  return Each([&](int i) { return __builtin_bit_cast(float, static_cast<uint32_t>(Bf16Bits(a.v[i])) << 16); });
}
// Sixteen values of RoundBf16.
inline void StoreBf16(uint16_t* to, const Lanes& a) {
  for (int i = 0; i < 16; ++i) to[i] = Bf16Bits(a.v[i]);
}
// 32 values to the nearest bf16, as tiles take them: denormals are zero.
inline void StoreForTiles(uint16_t* to, const Lanes& low, const Lanes& high) {
  for (int i = 0; i < 32; ++i) {
    const auto bits = __builtin_bit_cast(uint32_t, i < 16 ? low.v[i] : high.v[i - 16]);
    to[i] = Bf16Bits(__builtin_bit_cast(float, (bits & 0x7f800000U) == 0 ? bits & 0x80000000U : bits));
  }
}
// from[at[i]] for lanes i < n, else 0.
inline Lanes Pick(const float* from, const int32_t* at, int64_t n) {
  return Each([&](int i) { return i < n ? from[at[i]] : 0.0F; });
}
// words[i] = words[sources[i]], 0 where that is not below 32, for i < 32.
inline void Rearrange(uint16_t* words, const uint8_t* sources) {
  uint16_t before[32];
  __builtin_memcpy(before, words, sizeof(before));
  for (int i = 0; i < 32; ++i) words[i] = sources[i] < 32 ? before[sources[i]] : uint16_t{0};
}
inline uint16_t F16Bits(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 16) & 0x8000U, magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // 65520 and above round to infinity
  if (magnitude < 0x38800000U) {
    // Below 2^-14: adding 0.5 makes the f32 adder round to a multiple of 2^-24, ties to even.
    const float rounded = __builtin_bit_cast(float, magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, rounded) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}
inline void StoreF16(uint16_t* to, const Lanes& a) {
  for (int i = 0; i < 16; ++i) to[i] = F16Bits(a.v[i]);
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
  static Lanes MulAdd(const Wide& a, const Wide& b, const Lanes& sums) { return Fma(a, b, sums); }
};
// The order of vdpbf16ps: odd members of the pairs first, then even ones. The instruction also flushes denormals. That
// is left out here, which shows only where a weighted sum is below 1e-37.
template <>
struct Steps<FloatType::kBF16> {
  struct Wide {
    Lanes even, odd;
  };
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kLaneBytes = 4;
  static constexpr int64_t kDims = 2;
  static constexpr int32_t kPositions = 2;
  static constexpr int64_t kParts = 1, kWords = 1;
  static Wide Load(const uint8_t* p, int64_t) {
    return {Each([&](int i) { return WidenAt<FloatType::kBF16>(p, 2 * i); }),
            Each([&](int i) { return WidenAt<FloatType::kBF16>(p, 2 * i + 1); })};
  }
  static Wide Broadcast(const uint32_t* p, int64_t) {
    return {Set(__builtin_bit_cast(float, *p << 16)), Set(__builtin_bit_cast(float, *p & 0xffff0000U))};
  }
  static Lanes MulAdd(const Wide& a, const Wide& b, const Lanes& sums) {
    return Fma(a.even, b.even, Fma(a.odd, b.odd, sums));
  }
};

// Stores 32 weights as ValueTile takes them. Returns sums plus the weights as they were rounded.
template <FloatType kType>
inline Lanes StoreWeights(uint32_t* to, const Lanes& low, const Lanes& high, const Lanes& sums) {
  Store(reinterpret_cast<float*>(to), low);
  Store(reinterpret_cast<float*>(to) + 16, high);
  return Add(sums, Add(low, high));
}
template <>
inline Lanes StoreWeights<FloatType::kBF16>(uint32_t* to, const Lanes& low, const Lanes& high, const Lanes& sums) {
  using Step = Steps<FloatType::kBF16>;
  auto* words = reinterpret_cast<uint16_t*>(to);
  StoreBf16(words, RoundBf16(low));
  StoreBf16(words + 16, RoundBf16(high));
  const uint32_t ones = 0x3f803f80;
  return Step::MulAdd(Step::Load(reinterpret_cast<const uint8_t*>(to), 0), Step::Broadcast(&ones, 0), sums);
}

// Sixteen dimensions of a query from d on.
template <FloatType kType>
inline void StoreQuery(uint32_t* to, int64_t d, const Lanes& x) {
  if (kType == FloatType::kBF16) {
    StoreBf16(reinterpret_cast<uint16_t*>(to) + d, RoundBf16(x));
  } else {
    Store(reinterpret_cast<float*>(to) + d, x);
  }
}
