// SPDX-License-Identifier: Apache-2.0
#include "kernels/noise.h"
#include "kernels/noise_inl.h"

namespace hydrant::kernels {

void GumbelRowAvx2(uint64_t seed, uint32_t stream, uint32_t position, int64_t vocab, float* out) {
  GumbelRowInline(seed, stream, position, vocab, out);
}

}  // namespace hydrant::kernels
