// SPDX-License-Identifier: Apache-2.0
// What this CPU and its operating system can run.
#pragma once

namespace hydrant::kernels {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C
  bool avx512 = false;  // F, BW, VL, DQ, VNNI, VBMI, BF16 besides
};

// CPUID and XCR0, read once.
const CpuFeatures& DetectCpuFeatures();

}  // namespace hydrant::kernels
