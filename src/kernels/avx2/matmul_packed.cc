// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes with AVX2. vpmaddubsw multiplies |code| <= 128 by a signed byte, adds two
// products in 16 bits and saturates. The byte is the weight or, where the code is negative, its complement,
// -weight - 1. An xor makes it, on any vector port. (vpsignb would make -weight, but shares the multipliers' ports. On
// one core of AMD Zen 4, 16 rows of w4 ran at 60 GMAC/s with vpsignb and at 71 with the xor, of w8 at 63 and 80.) With
// weights -127 .. 127 a pair of products is between 2 * 128 * -128 and 2 * 128 * 127 - 1, so every sum is exact. It is
// too large by the sum of a row's negative codes (below 0), the same for all outputs: PackedMatmulArgs::excess.
//
// |code| and the byte that the xor takes lie ready side by side, "signs" (KernelTable::sign_codes); the xor takes a
// weight's bias off as well. A product of 32 weights is then four instructions and little else, if several rows and
// outputs share what is loaded.
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx2/entries.h"
#include "kernels/packed.h"

namespace hydrant::kernels {
namespace {

#include "kernels/avx2/packed_epilogue.h"

inline __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

constexpr int64_t kCodeBytes = 2 * kLineBytes;
constexpr bool kWeightsOnce = false;

struct RowCodes {
  __m256i magnitudes, signs;
};
[[gnu::always_inline]] inline RowCodes LoadCodes(const int8_t* codes) {
  return {Load(codes), Load(codes + kLineBytes)};
}
[[gnu::always_inline]] inline __m256i AddProducts(__m256i sums, __m256i weights, const RowCodes& codes) {
  const __m256i pairs = _mm256_maddubs_epi16(codes.magnitudes, _mm256_xor_si256(weights, codes.signs));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "kernels/avx2/matmul_packed_inl.h"

}  // namespace

void PackedMatmulAvx2(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  MultiplyAll(args, panel_begin, panel_end);
}

void PackedMatmulInTurnsAvx2(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  MultiplyAllInTurns(args, panel_begin, panel_end);
}

int64_t PlanRowBlocksAvx2(int64_t code_rows, int64_t* sizes) { return PlanRowBlocks(code_rows, sizes); }

}  // namespace hydrant::kernels
