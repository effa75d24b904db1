// SPDX-License-Identifier: Apache-2.0
// The one loop behind every target's Gumbel row: the compiler vectorises it for the flags of the including file.
#pragma once

#include <cstdint>

#include "kernels/math_inl.h"
#include "kernels/philox.h"

namespace hydrant::kernels {

// Blocks of four tokens per round; 4 * 64 words and floats stay in L1.
inline constexpr int64_t kNoiseBlocks = 64;

static inline float GumbelOfWord(uint32_t word) {
  constexpr double kTwo52 = 4503599627370496.0;
  const double integer = __builtin_bit_cast(double, uint64_t{0x4330000000000000} | word) - kTwo52;  // exact
  const double v = (integer + 0.5) * 0x1p-32;
  const double exponential = -LogDouble(1.0 - v);  // 1 - v is exact
  return static_cast<float>(-LogDouble(exponential));
}

static inline void GumbelRowInline(uint64_t seed, uint32_t stream, uint32_t position, int64_t vocab, float* out) {
  const auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t words[4][kNoiseBlocks];
  float noise[4][kNoiseBlocks];
  for (int64_t begin = 0; begin < vocab; begin += 4 * kNoiseBlocks) {
    for (int64_t b = 0; b < kNoiseBlocks; ++b) {
      const auto block = static_cast<uint32_t>(begin / 4 + b);
      const PhiloxBlock random = Philox4x32({{position, block, stream, 0}}, key0, key1);
      words[0][b] = random.word[0];
      words[1][b] = random.word[1];
      words[2][b] = random.word[2];
      words[3][b] = random.word[3];
    }
    for (int64_t lane = 0; lane < 4; ++lane) {
      for (int64_t b = 0; b < kNoiseBlocks; ++b) noise[lane][b] = GumbelOfWord(words[lane][b]);
    }
    const int64_t count = vocab - begin < 4 * kNoiseBlocks ? vocab - begin : 4 * kNoiseBlocks;
    for (int64_t t = 0; t < count; ++t) out[begin + t] = noise[t % 4][t / 4];
  }
}

}  // namespace hydrant::kernels
