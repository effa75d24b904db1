// SPDX-License-Identifier: Apache-2.0
// Standard Gumbel noise for every token of a vocabulary at one position: out[t] = -log(-log(1 - v)), where
// v = (word + 1/2) / 2^32 and word t % 4 of Philox4x32-10(key = seed, counter = (position, t / 4, stream, 0)) is
// `word`. The transform is in double, rounded once to f32 at the end; -3.14 < out[t] < 22.88. Same bits on every
// target: each compiles this one loop, which the compiler vectorises, with its own flags.
#pragma once

#include <cstdint>

#include "kernels/generic/math_inl.h"
#include "kernels/generic/philox.h"

namespace hydrant::kernels {

// Blocks of four tokens per round. Their 4 * 64 words and floats stay in L1.
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
