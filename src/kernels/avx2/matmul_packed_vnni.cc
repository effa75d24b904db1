// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes with AVX-VNNI: vpdpbusd adds four products of unsigned and signed bytes to a sum
// of 32 bits. Weights are multiplied with their bias of 128, so sums are too large by 128 times the sum of a row's
// codes. On the way sums may exceed 32 bits and wrap, which does no harm.
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx2/entries.h"
#include "kernels/packed.h"

namespace hydrant::kernels {
namespace {

#include "kernels/avx2/packed_epilogue.h"

inline __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

constexpr int64_t kCodeBytes = kLineBytes;
constexpr bool kWeightsOnce = true;

using RowCodes = __m256i;
[[gnu::always_inline]] inline RowCodes LoadCodes(const int8_t* codes) { return Load(codes); }
[[gnu::always_inline]] inline __m256i AddProducts(__m256i sums, __m256i weights, RowCodes codes) {
  return _mm256_dpbusd_avx_epi32(sums, weights, codes);
}

#include "kernels/avx2/matmul_packed_inl.h"

}  // namespace

// Processors that have AVX-VNNI and no AVX-512 are Intel's: they read in turns.
void PackedMatmulAvxVnni(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  MultiplyAllInTurns(args, panel_begin, panel_end);
}

int64_t PlanRowBlocksAvxVnni(int64_t code_rows, int64_t* sizes) { return PlanRowBlocks(code_rows, sizes); }

}  // namespace hydrant::kernels
