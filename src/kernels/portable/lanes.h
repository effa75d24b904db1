// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 lanes as an array: what the intrinsics of the other targets mean. Included by portable files inside their
// unnamed namespace.

struct Lanes {
  float v[16];
};

template <typename Fn>
inline Lanes Each(const Fn& fn) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.v[i] = fn(i);
  return out;
}

inline Lanes Set(float x) {
  return Each([&](int) { return x; });
}
inline Lanes Load(const float* p) {
  return Each([&](int i) { return p[i]; });
}
inline Lanes LoadPart(const float* p, int64_t n) {
  return Each([&](int i) { return i < n ? p[i] : 0.0F; });
}
inline void StorePart(float* p, const Lanes& a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = a.v[i];
}
inline void Store(float* p, const Lanes& a) { StorePart(p, a, 16); }

inline Lanes Add(const Lanes& a, const Lanes& b) {
  return Each([&](int i) { return a.v[i] + b.v[i]; });
}
inline Lanes Sub(const Lanes& a, const Lanes& b) {
  return Each([&](int i) { return a.v[i] - b.v[i]; });
}
inline Lanes Mul(const Lanes& a, const Lanes& b) {
  return Each([&](int i) { return a.v[i] * b.v[i]; });
}
inline Lanes Div(const Lanes& a, const Lanes& b) {
  return Each([&](int i) { return a.v[i] / b.v[i]; });
}
inline Lanes Fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return Each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline Lanes Max(const Lanes& a, const Lanes& b) {
  return Each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
// a < b ? x : y, false for NaN.
inline Lanes SelectLess(const Lanes& a, const Lanes& b, const Lanes& x, const Lanes& y) {
  return Each([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
// a < b ? x * y : x, false for NaN.
inline Lanes MulWhereLess(const Lanes& a, const Lanes& b, const Lanes& x, const Lanes& y) {
  return SelectLess(a, b, Mul(x, y), x);
}
inline Lanes NegativeMagnitude(const Lanes& a) {
  return Each([&](int i) { return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, a.v[i]) | 0x80000000U); });
}
// a < b ? 0 : p * 2^k, false for NaN; k: an integer from -126 to 127 that was rounded by adding 1.5 * 2^23, which gave
// `shifted`: its low bits hold k.
inline Lanes ScaleUnlessLess(const Lanes& a, const Lanes& b, const Lanes& p, const Lanes& /*k*/, const Lanes& shifted) {
  const Lanes power = Each([&](int i) {
    return __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, shifted.v[i]) << 23) + 0x3f800000U);
  });
  return SelectLess(a, b, Set(0.0F), Mul(p, power));
}

inline float WidenHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return __builtin_bit_cast(float, sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // Reads the bits as an f32 whose exponent is 112 too small. Multiplying by 2^112 is exact, also for subnormals.
  const float value = __builtin_bit_cast(float, magnitude << 13) * 0x1p112F;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) | sign);
}
template <FloatType kType>
inline float WidenAt(const uint8_t* p, int64_t index) {
  if (kType == FloatType::kF32) {
    float value;
    __builtin_memcpy(&value, p + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  __builtin_memcpy(&bits, p + 2 * index, 2);
  return kType == FloatType::kBF16 ? __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16) : WidenHalf(bits);
}
// Elements index .. index + 15 of an array of kType.
template <FloatType kType>
inline Lanes LoadWide(const uint8_t* p, int64_t index) {
  return Each([&](int i) { return WidenAt<kType>(p, index + i); });
}
template <FloatType kType>
inline Lanes LoadWidePart(const uint8_t* p, int64_t index, int64_t n) {
  return Each([&](int i) { return i < n ? WidenAt<kType>(p, index + i) : 0.0F; });
}

// The tree 8-4-2-1 over the lanes.
inline float TreeSum(Lanes a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] + a.v[i + width];
  }
  return a.v[0];
}
inline float TreeMax(Lanes a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] > a.v[i + width] ? a.v[i] : a.v[i + width];
  }
  return a.v[0];
}
