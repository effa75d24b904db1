// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#endif

namespace hydrant::kernels {
namespace {

#if defined(__x86_64__)

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf Read(uint32_t leaf, uint32_t subleaf) {
  Leaf regs;
  __get_cpuid_count(leaf, subleaf, &regs.eax, &regs.ebx, &regs.ecx, &regs.edx);
  return regs;
}

bool Bit(uint32_t word, int bit) { return ((word >> bit) & 1U) != 0; }

// Register state that the operating system saves.
uint64_t Xcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

CpuFeatures Detect() {
  CpuFeatures features;
  const Leaf one = Read(1, 0);
  const Leaf seven = Read(7, 0);
  const Leaf seven_one = Read(7, 1);
  const bool osxsave = Bit(one.ecx, 27);
  if (!osxsave) return features;
  const uint64_t state = Xcr0();
  const bool ymm = (state & 0x6U) == 0x6U;
  const bool zmm = (state & 0xe6U) == 0xe6U;
  features.avx2 =
      ymm && Bit(one.ecx, 12) && Bit(one.ecx, 28) && Bit(one.ecx, 29) && Bit(seven.ebx, 5);  // FMA AVX F16C AVX2
  features.avx512 = features.avx2 && zmm && Bit(seven.ebx, 16) && Bit(seven.ebx, 17) && Bit(seven.ebx, 30) &&
                    Bit(seven.ebx, 31) && Bit(seven.ecx, 1) && Bit(seven.ecx, 11) && Bit(seven_one.eax, 5);
  return features;
}

#else

CpuFeatures Detect() { return {}; }

#endif

}  // namespace

const CpuFeatures& DetectCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

}  // namespace hydrant::kernels
