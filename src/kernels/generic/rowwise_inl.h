// SPDX-License-Identifier: Apache-2.0
// Row-wise ops, written once over sixteen lanes: IEEE f32 (or f64) in a fixed order, fused only where Fma says so, so
// the bits are equal on all targets. Included by target files inside their unnamed namespace, after <target>/lanes.h
// and generic/exp_inl.h; no standard templates.

// Calls fn(offset, n) for each 16 lanes, with n = 16, or fewer for the last ones. (Rows of real models are whole.)
template <typename Fn>
inline void ForLanes(int64_t count, const Fn& fn) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) fn(i, int64_t{16});
  if (i < count) fn(i, count - i);
}
inline Lanes LoadN(const float* p, int64_t n) { return n == 16 ? Load(p) : LoadPart(p, n); }
inline void StoreN(float* p, Lanes a, int64_t n) {
  if (n == 16) {
    Store(p, a);
  } else {
    StorePart(p, a, n);
  }
}

template <FloatType kType>
inline void WidenAs(const uint8_t* from, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, int64_t lanes) {
    StoreN(out + i, lanes == 16 ? LoadWide<kType>(from, i) : LoadWidePart<kType>(from, i, lanes), lanes);
  });
}
void WidenKernel(const uint8_t* from, FloatType type, int64_t n, float* out) {
  if (type == FloatType::kF32) return WidenAs<FloatType::kF32>(from, n, out);
  if (type == FloatType::kBF16) return WidenAs<FloatType::kBF16>(from, n, out);
  WidenAs<FloatType::kF16>(from, n, out);
}

// silu(x) = x / (1 + exp(-x)), computed as x exp(x) / (1 + exp(x)) for negative x.
inline Lanes Silu(Lanes x) {
  const Lanes power = Exp(NegativeMagnitude(x));
  return Div(MulWhereLess(x, Set(0.0F), x, power), Add(Set(1.0F), power));
}

void RmsNormKernel(const float* x, const float* weight, float eps, int64_t n, float* out) {
  Lanes squares = Set(0.0F);
  ForLanes(n, [&](int64_t i, int64_t lanes) {
    const Lanes value = LoadN(x + i, lanes);
    squares = Fma(value, value, squares);
  });
  const float mean = TreeSum(squares) / static_cast<float>(n);
  const Lanes scale = Set(1.0F / __builtin_sqrtf(mean + eps));
  ForLanes(n, [&](int64_t i, int64_t lanes) {
    StoreN(out + i, Mul(Mul(LoadN(x + i, lanes), scale), LoadN(weight + i, lanes)), lanes);
  });
}

// sin and cos of an f32 angle, in double: quadrant by Cody and Waite in three parts, then the Taylor series up to r^17
// on |r| <= pi/4 (remainder below 2^-57); rounded once to f32. Angles up to 2^31 keep f32 accuracy.
void RopeTableKernel(float position, const float* inv_freq, int64_t half, float* cos, float* sin) {
  constexpr double kTwoOverPi = 0.63661977236758134308;
  constexpr double kPio2High = 1.57079632673412561417e+00;
  constexpr double kPio2Mid = 6.07710050630396597660e-11;
  constexpr double kPio2Low = 2.02226624879595063154e-21;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position * inv_freq[i]);
    const double shifted = angle * kTwoOverPi + kRound;
    const double k = shifted - kRound;
    const uint64_t quadrant = __builtin_bit_cast(uint64_t, shifted) & 3;
    const double r = ((angle - k * kPio2High) - k * kPio2Mid) - k * kPio2Low;
    const double z = r * r;
    double s = 1.0 / 355687428096000.0;
    s = s * z - 1.0 / 1307674368000.0;
    s = s * z + 1.0 / 6227020800.0;
    s = s * z - 1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = s * z * r + r;
    double c = 1.0 / 20922789888000.0;
    c = c * z - 1.0 / 87178291200.0;
    c = c * z + 1.0 / 479001600.0;
    c = c * z - 1.0 / 3628800.0;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = c * z - 1.0 / 2.0;
    c = c * z + 1.0;
    const double sine = (quadrant & 1) != 0 ? c : s;
    const double cosine = (quadrant & 1) != 0 ? s : c;
    sin[i] = static_cast<float>((quadrant & 2) != 0 ? -sine : sine);
    cos[i] = static_cast<float>(((quadrant + 1) & 2) != 0 ? -cosine : cosine);
  }
}

void RopeKernel(float* head, const float* cos, const float* sin, int64_t half) {
  ForLanes(half, [&](int64_t i, int64_t lanes) {
    const Lanes a = LoadN(head + i, lanes), b = LoadN(head + half + i, lanes);
    const Lanes c = LoadN(cos + i, lanes), s = LoadN(sin + i, lanes);
    StoreN(head + i, Sub(Mul(a, c), Mul(b, s)), lanes);
    StoreN(head + half + i, Add(Mul(b, c), Mul(a, s)), lanes);
  });
}

void SiluMulKernel(const float* gate, const float* up, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, int64_t lanes) {
    StoreN(out + i, Mul(Silu(LoadN(gate + i, lanes)), LoadN(up + i, lanes)), lanes);
  });
}

void ResidualSiluKernel(const float* residual, const float* linear, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, int64_t lanes) {
    StoreN(out + i, Add(LoadN(residual + i, lanes), Silu(LoadN(linear + i, lanes))), lanes);
  });
}

// gelu(x) = x * Phi(x), Phi the normal distribution: max(x, 0) - |x| * Phi(-|x|), so that the tail loses no digits to a
// difference. Phi(-|x|) is half of erfc(|x| / sqrt 2), by Abramowitz and Stegun (1964), 7.1.26: a polynomial in
// 1 / (1 + 0.3275911 |x| / sqrt 2) times exp(-x^2 / 2); its error is below 0.75e-7.
inline Lanes Gelu(Lanes x) {
  const Lanes negative = NegativeMagnitude(x);
  const Lanes t = Div(Set(1.0F), Fma(negative, Set(-0.23164189F), Set(1.0F)));
  Lanes p = Set(0.5307027145F);  // half of theirs
  p = Fma(p, t, Set(-0.7265760135F));
  p = Fma(p, t, Set(0.7107068705F));
  p = Fma(p, t, Set(-0.142248368F));
  p = Fma(p, t, Set(0.127414796F));
  const Lanes tail = Mul(Mul(p, t), Exp(Mul(Mul(x, x), Set(-0.5F))));
  return Fma(negative, tail, Max(x, Set(0.0F)));
}

void BiasGeluKernel(const float* x, const float* bias, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, int64_t lanes) {
    StoreN(out + i, Gelu(Add(LoadN(x + i, lanes), LoadN(bias + i, lanes))), lanes);
  });
}

void ExpSumsKernel(const float* x, int64_t n, ExpSum* out) {
  constexpr float kNothing = -3e38F;  // finite, so that no difference of two is NaN
  constexpr int64_t kVectors = kExpSumScores / 16;
  for (int64_t i = 0; i < n; i += kExpSumScores) {
    Lanes values[kVectors], largest_of = Set(kNothing), sums = Set(0.0F);
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t begin = i + 16 * v;
      float part[16];
      const bool whole = begin + 16 <= n;
      for (int64_t l = 0; !whole && l < 16; ++l) part[l] = begin + l < n ? x[begin + l] : kNothing;
      values[v] = Max(Load(whole ? x + begin : part), Set(kNothing));  // the second for NaN
      largest_of = Max(largest_of, values[v]);
    }
    const float largest = TreeMax(largest_of);
    for (int64_t v = 0; v < kVectors; ++v) sums = Add(sums, Exp(Sub(values[v], Set(largest))));
    *out++ = {largest, TreeSum(sums)};
  }
}

// The table with the kernels of this file, and with the noise (generic/noise_inl.h).
constexpr KernelTable WithRowwise(KernelTable table) {
  table.rms_norm = RmsNormKernel;
  table.rope_table = RopeTableKernel;
  table.rope = RopeKernel;
  table.silu_mul = SiluMulKernel;
  table.residual_silu = ResidualSiluKernel;
  table.bias_gelu = BiasGeluKernel;
  table.exp_sums = ExpSumsKernel;
  table.widen = WidenKernel;
  table.gumbel_row = GumbelRowInline;
  return table;
}
