// SPDX-License-Identifier: Apache-2.0
// Standard Gumbel noise for every token of a vocabulary at one position: out[t] = -log(-log(1 - v)), where
// v = (word + 1/2) / 2^32 and word t % 4 of Philox4x32-10(key = seed, counter = (position, t / 4, stream, 0)) is
// `word`. The transform is in double, rounded once to f32 at the end; -3.14 < out[t] < 22.88. Same bits on every
// target.
#pragma once

#include <cstdint>

namespace hydrant::kernels {

void GumbelRowPortable(uint64_t seed, uint32_t stream, uint32_t position, int64_t vocab, float* out);
void GumbelRowAvx2(uint64_t seed, uint32_t stream, uint32_t position, int64_t vocab, float* out);
void GumbelRowAvx512(uint64_t seed, uint32_t stream, uint32_t position, int64_t vocab, float* out);

}  // namespace hydrant::kernels
