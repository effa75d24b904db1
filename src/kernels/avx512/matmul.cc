// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx512/entries.h"

namespace hydrant::kernels {
namespace {

using V = __m512;
constexpr int64_t kLanes = 16;
constexpr int64_t kSliceOutputs = 2;  // lanes 0-7: the slices of one output, 8-15: of the next
constexpr int64_t kTileOutputs = 8;   // by two vectors of rows: 16 sums, twice what 2 ports of latency 4 need
// Vectors of weights that share a broadcast of inputs.
constexpr int64_t SliceVectors(int64_t) { return 2; }

inline V Zero() { return _mm512_setzero_ps(); }
inline V LoadV(const float* p) { return _mm512_loadu_ps(p); }
inline void StoreV(float* p, V a) { _mm512_storeu_ps(p, a); }
inline V AddV(V a, V b) { return _mm512_add_ps(a, b); }
inline V FmaV(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V BroadcastSlices(const float* p) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(p)); }

template <FloatType kType>
inline __m512 Widen(__m256i halves) {
  if (kType == FloatType::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// Weights are always widened first. Using them as they lie was not measured here: the shifts and masks of bf16 would
// share the ports of multiplications.
template <FloatType>
constexpr bool kWidens = true;

// Broadcasts the weight at p to all lanes.
template <FloatType kType>
inline V BroadcastOne(const uint8_t* p) {
  static_assert(kType == FloatType::kF32);
  return _mm512_set1_ps(*reinterpret_cast<const float*>(p));
}

// Broadcasts the weight at p and the next one.
template <FloatType kType>
inline void BroadcastPair(const uint8_t* p, V* weights) {
  weights[0] = BroadcastOne<kType>(p);
  weights[1] = BroadcastOne<kType>(p + 4);
}

// `to` has room for a multiple of 16.
template <FloatType kType>
inline void WidenRow(const uint8_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t rest = count - i;
    const auto mask = static_cast<__mmask16>(rest < 16 ? (1U << rest) - 1U : 0xffffU);
    if (kType == FloatType::kF32) {
      _mm512_store_ps(to + i, _mm512_maskz_loadu_ps(mask, from + 4 * i));
    } else {
      _mm512_store_ps(to + i, Widen<kType>(_mm256_maskz_loadu_epi16(mask, from + 2 * i)));
    }
  }
}

inline __m128i Load128(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Loads 16 bytes of slices k and k + 4 of both outputs, for k = 0 .. 3, and transposes 4 x 4 dwords inside each 128
// bits. Then dwords[j] holds dword j of slices 0-3 and 4-7 of the first output, and of slices 0-3 and 4-7 of the
// second.
inline void GatherDwords(const uint8_t* const* streams, int64_t stride, __m512i* dwords) {
  __m512i rows[4];
#pragma GCC unroll 16
  for (int64_t k = 0; k < 4; ++k) {
    __m512i row = _mm512_castsi128_si512(Load128(streams[0] + k * stride));
    row = _mm512_inserti32x4(row, Load128(streams[0] + (k + 4) * stride), 1);
    // Masked broadcasts from memory use any vector port; inserts would queue for the shuffle port.
    row = _mm512_mask_broadcast_i32x4(row, 0x0f00, Load128(streams[1] + k * stride));
    rows[k] = _mm512_mask_broadcast_i32x4(row, 0xf000, Load128(streams[1] + (k + 4) * stride));
  }
  const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]), high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]), high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
  dwords[0] = _mm512_unpacklo_epi64(low01, low23);
  dwords[1] = _mm512_unpackhi_epi64(low01, low23);
  dwords[2] = _mm512_unpacklo_epi64(high01, high23);
  dwords[3] = _mm512_unpackhi_epi64(high01, high23);
}

// 8 steps: weights[j] holds input j of each slice of both outputs.
template <FloatType kType>
inline void Expand(const uint8_t* const* streams, int64_t stride, V* weights) {
  __m512i dwords[4];
  if (kType == FloatType::kF32) {
#pragma GCC unroll 16
    for (int64_t half = 0; half < 2; ++half) {
      const uint8_t* moved[2] = {streams[0] + 16 * half, streams[1] + 16 * half};
      GatherDwords(moved, stride, dwords);
#pragma GCC unroll 16
      for (int64_t j = 0; j < 4; ++j) weights[4 * half + j] = _mm512_castsi512_ps(dwords[j]);
    }
    return;
  }
  GatherDwords(streams, stride, dwords);
#pragma GCC unroll 16
  for (int64_t j = 0; j < 4; ++j) {
    if (kType == FloatType::kBF16) {
      weights[2 * j] = _mm512_castsi512_ps(_mm512_slli_epi32(dwords[j], 16));
      weights[2 * j + 1] = _mm512_castsi512_ps(_mm512_and_si512(dwords[j], _mm512_set1_epi32(-65536)));
    } else {
      weights[2 * j] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords[j]));
      weights[2 * j + 1] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(dwords[j], 16)));
    }
  }
}

// Adds the eight slices of both outputs up: ((0+1)+(2+3))+((4+5)+(6+7)).
inline void SumSlices(V sums, float* total) {
  const __m256 pairs = _mm256_hadd_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  const __m256 quads = _mm256_hadd_ps(pairs, pairs);
  const __m128 both = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
  total[0] = _mm_cvtss_f32(both);
  total[1] = _mm_cvtss_f32(_mm_movehdup_ps(both));
}

// Transposes 16 x 16: first 4 x 4 blocks inside each 128 bits, then the blocks.
inline void Transpose(V* m) {
  V a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    const V low01 = _mm512_unpacklo_ps(m[i], m[i + 1]), high01 = _mm512_unpackhi_ps(m[i], m[i + 1]);
    const V low23 = _mm512_unpacklo_ps(m[i + 2], m[i + 3]), high23 = _mm512_unpackhi_ps(m[i + 2], m[i + 3]);
    a[i] = _mm512_shuffle_ps(low01, low23, 0x44);
    a[i + 1] = _mm512_shuffle_ps(low01, low23, 0xEE);
    a[i + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
    a[i + 3] = _mm512_shuffle_ps(high01, high23, 0xEE);
  }
#pragma GCC unroll 16
  for (int j = 0; j < 4; ++j) {
    b[j] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0x88);           // columns j, 8 + j of rows 0-7
    b[j + 4] = _mm512_shuffle_f32x4(a[j], a[j + 4], 0xDD);       // columns 4 + j, 12 + j of rows 0-7
    b[j + 8] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0x88);  // the same of rows 8-15
    b[j + 12] = _mm512_shuffle_f32x4(a[j + 8], a[j + 12], 0xDD);
  }
#pragma GCC unroll 16
  for (int j = 0; j < 4; ++j) {
    m[j] = _mm512_shuffle_f32x4(b[j], b[j + 8], 0x88);
    m[j + 8] = _mm512_shuffle_f32x4(b[j], b[j + 8], 0xDD);
    m[j + 4] = _mm512_shuffle_f32x4(b[j + 4], b[j + 12], 0x88);
    m[j + 12] = _mm512_shuffle_f32x4(b[j + 4], b[j + 12], 0xDD);
  }
}

#include "kernels/generic/matmul_inl.h"

}  // namespace

void MatmulAvx512(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  MatmulKernel(args, output_begin, output_end);
}

void PackLanesAvx512(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed) {
  PackLanesKernel(x, stride, rows, inputs, packed);
}

}  // namespace hydrant::kernels
