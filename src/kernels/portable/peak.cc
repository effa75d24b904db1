// SPDX-License-Identifier: Apache-2.0
// Plain loops, as fast as the compiler makes them: what the portable kernels could reach, not what the machine could.
#include <cstring>

#include "kernels/portable/entries.h"

namespace hydrant::kernels {
namespace {

constexpr int64_t kAccumulators = 32;
constexpr int64_t kBytes = 256;

// Keeps the compiler from knowing what is in memory, so that it must load and multiply each time.
template <typename T>
void Launder(T* data) {
  __asm__ volatile("" : : "r"(data) : "memory");
}

uint64_t ReadLines(const uint8_t* data, int64_t bytes) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < bytes; i += 64) {
    uint64_t words[8];
    std::memcpy(words, data + i, 64);
    for (int k = 0; k < 8; ++k) sums[k] += words[k];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

// Fused multiply-adds. Without -mfma each is a call of the C library, as in the portable kernels.
PeakResult MultiplyF32(int64_t rounds) {
  float a[kAccumulators], b[kAccumulators], sums[kAccumulators];
  for (int64_t k = 0; k < kAccumulators; ++k) {
    a[k] = b[k] = 1.0F;
    sums[k] = 0.0F;
  }
  for (int64_t n = 0; n < rounds; ++n) {
    Launder(a);
    for (int64_t k = 0; k < kAccumulators; ++k) sums[k] = __builtin_fmaf(a[k], b[k], sums[k]);
  }
  PeakResult result{.macs = rounds * kAccumulators};
  for (const float sum : sums) result.sum += static_cast<int64_t>(sum);
  return result;
}

PeakResult MultiplyInt8(int64_t rounds) {
  int8_t a[kBytes], b[kBytes];
  for (int64_t k = 0; k < kBytes; ++k) a[k] = b[k] = 1;
  PeakResult result{.macs = rounds * kBytes};
  for (int64_t n = 0; n < rounds; ++n) {
    Launder(a);
    Launder(b);
    int32_t sum = 0;
    for (int64_t k = 0; k < kBytes; ++k) sum += a[k] * b[k];
    result.sum += sum;
  }
  return result;
}

constexpr PeakLoop kLoops[] = {{PeakType::kF32, "fmaf", MultiplyF32}, {PeakType::kInt8, "plain C++", MultiplyInt8}};

}  // namespace

constinit const PeakEntries kPeakPortable = {ReadLines, kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace hydrant::kernels
