// SPDX-License-Identifier: Apache-2.0
// The arithmetic of TDPBF16PS, as Intel's manual defines it: f32, to nearest with ties to even; denormals among the
// operands and results become zeros of their sign; MXCSR is neither read nor written. A result is denormal if it is
// below 2^-126 after rounding to 24 bits, as with all x86 instructions that flush.
#pragma once

#include <cstdint>

namespace hydrant::kernels {
namespace {

inline float FlushDenormal(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  return (bits & 0x7f800000U) == 0 ? __builtin_bit_cast(float, bits & 0x80000000U) : x;
}

// The bf16 at `from`, flushed.
inline float Bf16Factor(const uint8_t* from) {
  uint16_t bits;
  __builtin_memcpy(&bits, from, 2);
  return FlushDenormal(__builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16));
}

// Denormal or 2^-126, of either sign.
inline bool IsTiny(float x) { return (__builtin_bit_cast(uint32_t, x) & 0x7fffffffU) - 1U < 0x00800000U; }

// a * b + c with TDPBF16PS's treatment of denormals; `rounded` is fmaf(a, b, c). An fmaf of 2^-126 may have been
// rounded up, as a denormal, from a value that 24 bits would keep below 2^-126. None of a, b and c is denormal; a and b
// have 8 bits.
inline float FlushFused(float a, float b, float c, float rounded) {
  if (!IsTiny(rounded)) return rounded;
  const float flushed = FlushDenormal(rounded);
  if (flushed == 0) return flushed;
  // The exact sum is sum + rest.
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = c, sum = product + addend;
  const double part = sum - product, rest = (product - (sum - part)) + (addend - part);
  const double sign = rounded < 0 ? -1 : 1, limit = 0x1p-126 - 0x1p-151;
  const bool below = sum * sign < limit || (sum * sign == limit && rest * sign < 0);
  return below ? __builtin_copysignf(0.0F, rounded) : rounded;
}

}  // namespace
}  // namespace hydrant::kernels
