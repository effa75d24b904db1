// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx2/entries.h"
#include "kernels/packed.h"

namespace hydrant::kernels {
namespace {

#include "kernels/avx2/quantize_inl.h"

// The bytes of RowBlock's signs: 0x80, or 0x7f where a code is negative.
inline __m256i Signs(__m256i codes) {
  return _mm256_xor_si256(_mm256_cmpgt_epi8(_mm256_setzero_si256(), codes), _mm256_set1_epi8(-128));
}

// Adds the negative codes of a line.
inline Sums AddLine(Sums sums, const Line& line) {
  const __m256i zero = _mm256_setzero_si256();
  return AddCodes(sums, _mm256_min_epi8(line.half[0], zero), _mm256_min_epi8(line.half[1], zero));
}
inline uint32_t Excess(Sums sums) { return Total(sums); }
inline void StoreLine(const QuantizeArgs&, int8_t* to, const Line& line) {
  StoreHalves(to, _mm256_abs_epi8(line.half[0]), _mm256_abs_epi8(line.half[1]));
  StoreHalves(to + kLineBytes, Signs(line.half[0]), Signs(line.half[1]));
}

#include "kernels/generic/quantize_inl.h"

}  // namespace

void QuantizeRowAvx2(const QuantizeArgs& args) { QuantizeRow(args); }

}  // namespace hydrant::kernels
