// SPDX-License-Identifier: Apache-2.0
// Row-wise ops and attention, written once as loops over 16 lanes that the compiler vectorises for each target. Every
// operation is IEEE f32 (or f64) in a fixed order, fused only where __builtin_fmaf says so, so the bits are equal on
// all targets. Included by target files inside their own unnamed namespace; no standard templates.

// exp(x) for f32: 2^k * p(r), |r| <= ln2/2; error below 2 units in the last place (tested). Below -87.3 the result is
// 0, above 88.7 infinity; NaN stays NaN.
static inline float ExpF32(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // 9 bits, so k * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: its low mantissa bits hold an integer
  const float clamped = x < -88.0F ? -88.0F : (x > 89.0F ? 89.0F : x);
  const float shifted = __builtin_fmaf(clamped, kLog2E, kRound);
  const float k = shifted - kRound;
  float r = __builtin_fmaf(k, -kLn2High, clamped);
  r = __builtin_fmaf(k, -kLn2Low, r);
  float p = 1.9875691500e-4F;
  p = __builtin_fmaf(p, r, 1.3981999507e-3F);
  p = __builtin_fmaf(p, r, 8.3334519073e-3F);
  p = __builtin_fmaf(p, r, 4.1665795894e-2F);
  p = __builtin_fmaf(p, r, 1.6666665459e-1F);
  p = __builtin_fmaf(p, r, 5.0000001201e-1F);
  p = __builtin_fmaf(p, r * r, r) + 1.0F;
  // 2^k in two halves, so that k = 128 does not overflow early.
  const int32_t n = static_cast<int32_t>(k);
  const int32_t half = n >> 1;
  const float a = __builtin_bit_cast(float, (half + 127) << 23);
  const float b = __builtin_bit_cast(float, (n - half + 127) << 23);
  const float result = p * a * b;
  const float flushed = x < -87.3F ? 0.0F : result;
  const float capped = x > 88.7228F ? __builtin_inff() : flushed;
  return x != x ? x : capped;
}

static inline float SiluF32(float x) { return x / (1.0F + ExpF32(-x)); }

// The tree 8-4-2-1 over 16 partial sums.
static inline float SumLanes(float* lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

// sum of a[i] * b[i]: 16 fused chains by index mod 16, then the tree.
static inline float DotLanes(const float* a, const float* b, int64_t n) {
  alignas(64) float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int l = 0; l < 16; ++l) lanes[l] = __builtin_fmaf(a[i + l], b[i + l], lanes[l]);
  }
  for (int l = 0; i + l < n; ++l) lanes[l] = __builtin_fmaf(a[i + l], b[i + l], lanes[l]);
  return SumLanes(lanes);
}

void RmsNormKernel(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const float mean = DotLanes(x, x, n) / static_cast<float>(n);
  const float scale = 1.0F / __builtin_sqrtf(mean + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * scale) * weight[i];
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
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

void SiluMulKernel(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = SiluF32(gate[i]) * up[i];
}

void ResidualSiluKernel(const float* residual, const float* linear, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = residual[i] + SiluF32(linear[i]);
}

static inline float WidenHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  // As an f32 with the exponent 112 too small: the multiplication by 2^112 is exact, subnormals included.
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112F;
  const uint32_t finite = __builtin_bit_cast(uint32_t, scaled);
  const uint32_t special = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
  return __builtin_bit_cast(float, sign | (magnitude >= 0x7c00u ? special : finite));
}

static inline void Widen(const uint8_t* from, FloatType type, int64_t n, float* to) {
  if (type == FloatType::kF32) {
    __builtin_memcpy(to, from, static_cast<uint64_t>(n) * 4);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    __builtin_memcpy(&bits, from + 2 * i, 2);
    to[i] = type == FloatType::kBF16 ? __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16) : WidenHalf(bits);
  }
}

// Widens the keys and values of positions [begin, end) of one block of positions into scratch, in position order. A row
// of the tree finds its ancestors in slots of their own.
static inline void GatherBlock(const AttentionArgs& args, int32_t begin, int32_t end) {
  const int64_t width = args.head_dim;
  const int64_t bytes = args.type == FloatType::kF32 ? 4 : 2;
  const int64_t half = args.num_kv_heads * 32 * width * bytes;  // keys, then values
  for (int32_t p = begin; p < end; ++p) {
    const int32_t slot = p < args.identity_length ? p : args.path[p - args.identity_length];
    const int64_t block = args.blocks[slot / 32];
    const uint8_t* k = args.kv + block * 2 * half + (args.kv_head * 32 + slot % 32) * width * bytes;
    Widen(k, args.type, width, args.scratch + (p - begin) * width);
    Widen(k + half, args.type, width, args.scratch + (32 + p - begin) * width);
  }
}

// Softmax over blocks of 32 positions at fixed absolute places, ascending, with a running (max, sum, output).
void AttentionKernel(const AttentionArgs& args) {
  constexpr int64_t kMaxGroup = 64;  // ops.cc splits larger groups
  float running_max[kMaxGroup];
  float running_sum[kMaxGroup];
  const int64_t width = args.head_dim;
  for (int64_t g = 0; g < args.group; ++g) {
    running_max[g] = -__builtin_inff();
    running_sum[g] = 0.0F;
    for (int64_t d = 0; d < width; ++d) args.out[g * width + d] = 0.0F;
  }
  for (int32_t begin = args.first; begin <= args.last;) {
    const int32_t block_end = (begin / 32 + 1) * 32;
    const int32_t end = block_end < args.last + 1 ? block_end : args.last + 1;
    // The lane of a position is its place in the block, whatever the window cuts off.
    const int32_t lane = begin % 32;
    const int32_t count = end - begin;
    GatherBlock(args, begin, end);
    for (int64_t g = 0; g < args.group; ++g) {
      alignas(64) float scores[32];
      float top = running_max[g];
      for (int32_t i = 0; i < count; ++i) {
        scores[i] = DotLanes(args.q + g * width, args.scratch + i * width, width) * args.scale;
        top = scores[i] > top ? scores[i] : top;
      }
      alignas(64) float lanes[16] = {};
      for (int32_t i = 0; i < count; ++i) scores[i] = ExpF32(scores[i] - top);
      for (int32_t i = 0; i < count; ++i) lanes[(lane + i) % 16] = lanes[(lane + i) % 16] + scores[i];
      const float correction = running_max[g] == top ? 1.0F : ExpF32(running_max[g] - top);
      running_sum[g] = running_sum[g] * correction + SumLanes(lanes);
      running_max[g] = top;
      float* out = args.out + g * width;
      for (int64_t d = 0; d < width; ++d) out[d] = out[d] * correction;
      for (int32_t i = 0; i < count; ++i) {
        const float* v = args.scratch + (32 + i) * width;
        for (int64_t d = 0; d < width; ++d) out[d] = __builtin_fmaf(scores[i], v[d], out[d]);
      }
    }
    begin = end;
  }
  for (int64_t g = 0; g < args.group; ++g) {
    const float inverse = 1.0F / running_sum[g];
    for (int64_t d = 0; d < width; ++d) args.out[g * width + d] = args.out[g * width + d] * inverse;
  }
}
