// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx2/entries.h"

namespace hydrant::kernels {
namespace {

using V = __m256;
constexpr int64_t kLanes = 8;
constexpr int64_t kSliceOutputs = 1;
// Vectors of weights that share a broadcast of inputs. The weights alone take 8 registers for each vector.
constexpr int64_t SliceVectors(int64_t rows) { return rows <= 2 ? 2 : 1; }
constexpr int64_t kTileOutputs =
    4;  // by two vectors of rows: 8 sums, what 2 ports of latency 4 need; 16 registers in all

inline V Zero() { return _mm256_setzero_ps(); }
inline V LoadV(const float* p) { return _mm256_loadu_ps(p); }
inline void StoreV(float* p, V a) { _mm256_storeu_ps(p, a); }
inline V AddV(V a, V b) { return _mm256_add_ps(a, b); }
inline V FmaV(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline V BroadcastSlices(const float* p) { return _mm256_loadu_ps(p); }

inline __m128i Load128(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

template <FloatType kType>
inline __m256 Widen(__m128i halves) {
  if (kType == FloatType::kF16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// f16 needs more operations: both its conversion and its broadcast shuffle.
template <FloatType kType>
constexpr bool kWidens = kType == FloatType::kF16;

// Broadcasts the weight at p to all lanes.
template <FloatType kType>
inline V BroadcastOne(const uint8_t* p) {
  static_assert(!kWidens<kType>);
  if (kType == FloatType::kF32) return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(static_cast<uint32_t>(bits) << 16)));
}

// Broadcasts the weight at p and the next one.
template <FloatType kType>
inline void BroadcastPair(const uint8_t* p, V* weights) {
  if (kType == FloatType::kF32) {
    weights[0] = BroadcastOne<kType>(p);
    weights[1] = BroadcastOne<kType>(p + 4);
    return;
  }
  const __m256i both = _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(p)));
  weights[0] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
  weights[1] = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
}

// `to` has room for a multiple of 8.
template <FloatType kType>
inline void WidenRow(const uint8_t* from, int64_t count, float* to) {
  constexpr int64_t kBytes = kType == FloatType::kF32 ? 4 : 2;
  const auto widen = [](const uint8_t* p, float* t) {
    _mm256_store_ps(
        t, kType == FloatType::kF32 ? _mm256_loadu_ps(reinterpret_cast<const float*>(p)) : Widen<kType>(Load128(p)));
  };
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) widen(from + i * kBytes, to + i);
  if (i == count) return;
  alignas(32) uint8_t rest[8 * kBytes] = {};
  __builtin_memcpy(rest, from + i * kBytes, static_cast<uint64_t>((count - i) * kBytes));
  widen(rest, to + i);
}

// Loads 16 bytes of slices k and k + 4, for k = 0 .. 3, and transposes 4 x 4 dwords inside each 128 bits. Then
// dwords[j] holds dword j of slices 0 .. 7.
inline void GatherDwords(const uint8_t* stream, int64_t stride, __m256i* dwords) {
  __m256i rows[4];
  for (int64_t k = 0; k < 4; ++k) {
    rows[k] = _mm256_inserti128_si256(_mm256_castsi128_si256(Load128(stream + k * stride)),
                                      Load128(stream + (k + 4) * stride), 1);
  }
  const __m256i low01 = _mm256_unpacklo_epi32(rows[0], rows[1]), high01 = _mm256_unpackhi_epi32(rows[0], rows[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(rows[2], rows[3]), high23 = _mm256_unpackhi_epi32(rows[2], rows[3]);
  dwords[0] = _mm256_unpacklo_epi64(low01, low23);
  dwords[1] = _mm256_unpackhi_epi64(low01, low23);
  dwords[2] = _mm256_unpacklo_epi64(high01, high23);
  dwords[3] = _mm256_unpackhi_epi64(high01, high23);
}

// The low halves of eight dwords, as f32.
inline V WidenLowHalves(__m256i dwords) {
  const __m256i low = _mm256_blend_epi16(dwords, _mm256_setzero_si256(), 0xAA);
  const __m256i packed = _mm256_packus_epi32(low, low);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

// 8 steps: weights[j] holds input j of each slice.
template <FloatType kType>
inline void Expand(const uint8_t* const* streams, int64_t stride, V* weights) {
  __m256i dwords[4];
  if (kType == FloatType::kF32) {
    for (int64_t half = 0; half < 2; ++half) {
      GatherDwords(streams[0] + 16 * half, stride, dwords);
      for (int64_t j = 0; j < 4; ++j) weights[4 * half + j] = _mm256_castsi256_ps(dwords[j]);
    }
    return;
  }
  GatherDwords(streams[0], stride, dwords);
  for (int64_t j = 0; j < 4; ++j) {
    if (kType == FloatType::kBF16) {
      weights[2 * j] = _mm256_castsi256_ps(_mm256_slli_epi32(dwords[j], 16));
      weights[2 * j + 1] = _mm256_castsi256_ps(_mm256_and_si256(dwords[j], _mm256_set1_epi32(-65536)));
    } else {
      weights[2 * j] = WidenLowHalves(dwords[j]);
      weights[2 * j + 1] = WidenLowHalves(_mm256_srli_epi32(dwords[j], 16));
    }
  }
}

// Adds the eight slices of an output up: ((0+1)+(2+3))+((4+5)+(6+7)).
inline void SumSlices(V sums, float* total) {
  const __m256 pairs = _mm256_hadd_ps(sums, sums);
  const __m256 quads = _mm256_hadd_ps(pairs, pairs);
  total[0] = _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1)));
}

// Transposes 8 x 8: first 4 x 4 blocks inside each 128 bits, then the blocks.
inline void Transpose(V* m) {
  V a[8];
  for (int i = 0; i < 8; i += 4) {
    const V low01 = _mm256_unpacklo_ps(m[i], m[i + 1]), high01 = _mm256_unpackhi_ps(m[i], m[i + 1]);
    const V low23 = _mm256_unpacklo_ps(m[i + 2], m[i + 3]), high23 = _mm256_unpackhi_ps(m[i + 2], m[i + 3]);
    a[i] = _mm256_shuffle_ps(low01, low23, 0x44);
    a[i + 1] = _mm256_shuffle_ps(low01, low23, 0xEE);
    a[i + 2] = _mm256_shuffle_ps(high01, high23, 0x44);
    a[i + 3] = _mm256_shuffle_ps(high01, high23, 0xEE);
  }
  for (int j = 0; j < 4; ++j) {
    m[j] = _mm256_permute2f128_ps(a[j], a[j + 4], 0x20);
    m[j + 4] = _mm256_permute2f128_ps(a[j], a[j + 4], 0x31);
  }
}

#include "kernels/generic/matmul_inl.h"

}  // namespace

void MatmulAvx2(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  MatmulKernel(args, output_begin, output_end);
}

void PackLanesAvx2(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed) {
  PackLanesKernel(x, stride, rows, inputs, packed);
}

}  // namespace hydrant::kernels
