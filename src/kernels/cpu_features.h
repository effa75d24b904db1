// SPDX-License-Identifier: Apache-2.0
// What this CPU and its operating system can run.
#pragma once

namespace hydrant::kernels {

struct CpuFeatures {
  bool avx2 = false;      // AVX2, FMA, F16C
  bool avx_vnni = false;  // avx2, and vpdpbusd without AVX-512
  bool avx512 = false;    // F, BW, VL, DQ, VNNI, VBMI, BF16 besides
  // vdpbf16ps takes as long as four fused multiply-adds, as on Intel's processors: 0.54 and 0.14 ns on one with AMX.
  // AMD Zen 4 starts one in each cycle.
  bool slow_bf16_dots = false;
  // Memory is read fastest as several streams, a line of each in turn, by prefetches to the first-level cache. So it is
  // on Intel's processors (34 GB/s as one stream, 39 as four). AMD's read fastest by prefetches to the second level,
  // further ahead.
  bool reads_in_turns = false;
  bool amx = false;  // tiles, INT8 and BF16 besides, and this process may use them
};

// CPUID and XCR0, read once. Where the CPU has tiles, the first call asks Linux for permission to use them, for all
// threads of the process and their children. Linux refuses where a thread's alternate signal stack is too small for the
// tiles' 8 KB.
const CpuFeatures& DetectCpuFeatures();

}  // namespace hydrant::kernels
