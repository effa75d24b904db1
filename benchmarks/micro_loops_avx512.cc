// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/amx/tiles.h"
#include "kernels/packed.h"
#include "micro_loops.h"

namespace hydrant::kernels {
namespace {

#define HYDRANT_INLINE __attribute__((always_inline)) inline
#include "kernels/avx512/packed_epilogue.h"
#include "kernels/avx512/transpose.h"

#include "kernels/amx/matmul_packed_vectors_avx512.h"

inline __m512i TableOf(const uint8_t* dictionary, uint8_t number) {
  const void* table = dictionary + number * kTableEntries;
  return _mm512_broadcast_i32x4(_mm_load_si128(static_cast<const __m128i*>(table)));
}

}  // namespace
}  // namespace hydrant::kernels

namespace hydrant::micro {

void ExpandByVpermb(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary, int64_t count,
                    uint8_t* out) {
  for (int64_t n = 0; n < count; n += 4) {
    kernels::Avx512Vectors::Expand<4>(lines + 64 * n, tables + 2 * n, dictionary, out + 128 * n);
  }
}

void ExpandByVpshufb(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary, int64_t count,
                     uint8_t* out) {
  const __m512i nibble = _mm512_set1_epi8(15);
  for (int64_t n = 0; n < count; ++n) {
    const __m512i codes = _mm512_load_si512(lines + 64 * n);
    const __m512i low = _mm512_and_si512(codes, nibble);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
    _mm512_store_si512(out + 128 * n, _mm512_shuffle_epi8(kernels::TableOf(dictionary, tables[2 * n]), low));
    _mm512_store_si512(out + 128 * n + 64, _mm512_shuffle_epi8(kernels::TableOf(dictionary, tables[2 * n + 1]), high));
  }
}

void FinishTileByAvx512(const kernels::PackedMatmulArgs& args, const kernels::RowBlock& block, const int32_t* sums) {
  kernels::Avx512Vectors::Finish(args, 0, block, sums);
}

}  // namespace hydrant::micro
