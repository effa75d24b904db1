// SPDX-License-Identifier: Apache-2.0
// exp and log in double for whatever decides a token: one fixed order of IEEE operations, so the bits are the same on
// every CPU target and do not depend on the C library. No branches, so loops over them vectorise; no fma, so a machine
// without it gives the same bits; no standard templates, so target files may include this.
#pragma once

#include <cstdint>

namespace hydrant::kernels {

// Error below 2 units in the last place for normal x > 0 (tested), also near 1, since x - 1 is exact there: LogDouble(1
// - v) is log1p(-v) wherever 1 - v is exact. Zero, negative, infinite and NaN arguments give no meaningful result.
static inline double LogDouble(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2)
  constexpr uint64_t kBias = uint64_t{1024} << 52;    // keeps the exponent positive: AVX2 has no signed 64-bit shift
  constexpr double kTwo52 = 4503599627370496.0;       // 2^52: its low mantissa bits hold an integer
  constexpr uint64_t kTwo52Bits = 0x4330000000000000;
  constexpr double kLn2High = 0x1.62e42fefap-1;      // 36 bits, so that k * kLn2High is exact
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;  // ln 2 - kLn2High
  // x = 2^k * m with m in [sqrt(1/2), sqrt(2)).
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  const uint64_t shifted = bits - kSqrtHalf + kBias;
  const double k = __builtin_bit_cast(double, kTwo52Bits | (shifted >> 52)) - (kTwo52 + 1024.0);
  const double m = __builtin_bit_cast(double, bits - ((shifted & 0xfff0000000000000) - kBias));
  // log m = 2 atanh(s) = 2 s (1 + z/3 + z^2/5 + ...); z <= 0.0295, so the first term left out is below 2^-60.
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 1.0 / 21;
  series = series * z + 1.0 / 19;
  series = series * z + 1.0 / 17;
  series = series * z + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  const double twice = s + s;
  return k * kLn2High + (twice + (twice * (z * series) + k * kLn2Low));
}

// Error below 2 units in the last place from -708 to 709 (tested); 0 below -708, where results would be subnormal;
// exp(709) above. NaN gives an unspecified value.
static inline double ExpDouble(double x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  constexpr double kInvLn2 = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fefap-1;
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  const double high = x < 709.0 ? x : 709.0;
  const double y = high > -708.0 ? high : -708.0;
  const double shifted = y * kInvLn2 + kRound;
  const double k = shifted - kRound;
  const double r = (y - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2: the first term left out is below 2^-57
  double series = 1.0 / 6227020800.0;
  series = series * r + 1.0 / 479001600.0;
  series = series * r + 1.0 / 39916800.0;
  series = series * r + 1.0 / 3628800.0;
  series = series * r + 1.0 / 362880.0;
  series = series * r + 1.0 / 40320.0;
  series = series * r + 1.0 / 5040.0;
  series = series * r + 1.0 / 720.0;
  series = series * r + 1.0 / 120.0;
  series = series * r + 1.0 / 24.0;
  series = series * r + 1.0 / 6.0;
  series = series * r + 0.5;
  const double power = 1.0 + (r + r * r * series);
  // The low bits of `shifted` hold k; adding them to the exponent multiplies by 2^k.
  const uint64_t scaled = __builtin_bit_cast(uint64_t, power) + (__builtin_bit_cast(uint64_t, shifted) << 52);
  return x < -708.0 ? 0.0 : __builtin_bit_cast(double, scaled);
}

}  // namespace hydrant::kernels
