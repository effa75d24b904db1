// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

// Linux saves no tile data for a process that has not asked (Documentation/arch/x86/xstate.rst): without permission the
// first tile instruction is an illegal one.
bool MayUseTiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool HasTiles(const Leaf& seven, uint64_t state) {
  const bool saved = (state & 0x60000U) == 0x60000U;                                         // XTILECFG, XTILEDATA
  const bool instructions = Bit(seven.edx, 22) && Bit(seven.edx, 24) && Bit(seven.edx, 25);  // BF16 TILE INT8
  if (!saved || !instructions || Read(0x1d, 0).eax < 1) return false;
  const Leaf palette = Read(0x1d, 1);
  const bool full = palette.ebx >> 16 >= 8 && (palette.ebx & 0xffffU) >= 64 && (palette.ecx & 0xffffU) >= 16;
  return full && MayUseTiles();
}

bool IsIntel() {
  const Leaf zero = Read(0, 0);
  return zero.ebx == signature_INTEL_ebx && zero.ecx == signature_INTEL_ecx && zero.edx == signature_INTEL_edx;
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
  features.avx_vnni = features.avx2 && Bit(seven_one.eax, 4);
  features.avx512 = features.avx2 && zmm && Bit(seven.ebx, 16) && Bit(seven.ebx, 17) && Bit(seven.ebx, 30) &&
                    Bit(seven.ebx, 31) && Bit(seven.ecx, 1) && Bit(seven.ecx, 11) && Bit(seven_one.eax, 5);
  features.slow_bf16_dots = features.avx512 && IsIntel();
  features.reads_in_turns = features.avx2 && IsIntel();
  features.amx = features.avx512 && Bit(seven.ebx, 8) && HasTiles(seven, state);  // BMI2
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
