// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// A piece of assembler, because the compiler would take the product of equal operands out of the loop.
inline void Add(__m256i& sum, __m256i ones) { __asm__("%{vex%} vpdpbusd %1, %1, %0" : "+x"(sum) : "x"(ones)); }

int64_t Total(__m256i sum) {
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  int64_t total = 0;
  for (const int32_t lane : lanes) total += lane;
  return total;
}

// Latency 5 on two ports wants 10 sums. Variables, because GCC 12 stores an array in every round.
PeakResult Multiply(int64_t rounds) {
  const __m256i ones = _mm256_set1_epi8(1);
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a;
  for (int64_t n = 0; n < rounds; ++n) {
    Add(a, ones), Add(b, ones), Add(c, ones), Add(d, ones), Add(e, ones);
    Add(f, ones), Add(g, ones), Add(h, ones), Add(i, ones), Add(j, ones);
  }
  const int64_t sum =
      Total(a) + Total(b) + Total(c) + Total(d) + Total(e) + Total(f) + Total(g) + Total(h) + Total(i) + Total(j);
  return {10 * 32 * rounds, sum};
}

}  // namespace

constinit const PeakLoop kPeakAvxVnni = {PeakType::kInt8, "vpdpbusd ymm", Multiply};

}  // namespace hydrant::kernels
