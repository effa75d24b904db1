// SPDX-License-Identifier: Apache-2.0
// f32 matmul with f32, bf16 or f16 weights. A zmm holds one step j of two outputs: lanes 0-7 are the 8 input slices of
// output o, lanes 8-15 those of output o + 1. Weights are transposed from 8 slice streams into that shape once per
// block of steps (from memory into L1) and used by all rows; a row's order of additions is the portable twin's.
#include <immintrin.h>

#include <cstdint>

#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

constexpr int64_t kOutputs = 4;   // of one panel: two pairs
constexpr int64_t kSteps = 128;   // of one block: 2 pairs * 128 * 64 bytes = 16 KiB, a third of a 48 KiB L1
constexpr int64_t kRowBlock = 6;  // 2 pairs * 6 rows = 12 sums: more than 4 cycles * 2 ports of fused latency
constexpr int64_t kMaxRows = 64;  // sums kept between blocks of steps

struct Panel {
  alignas(64) float weights[2][kSteps][16];  // [pair][step][2 outputs * 8 slices]
  alignas(64) float sums[kMaxRows][2][16];   // [row][pair]
};

inline float WeightAt(const MatmulArgs& args, int64_t output, int64_t input) {
  const int64_t index = output * args.row_stride + input;
  if (args.type == FloatType::kF32) {
    float value;
    __builtin_memcpy(&value, args.weight + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  __builtin_memcpy(&bits, args.weight + 2 * index, 2);
  if (args.type == FloatType::kBF16) return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

// Step by step, with zeros past the inputs and past the outputs.
void ExpandSlow(const MatmulArgs& args, int64_t output, int64_t outputs, int64_t step, int64_t steps, float (*to)[16]) {
  for (int64_t j = 0; j < steps; ++j) {
    for (int64_t o = 0; o < 2; ++o) {
      for (int64_t s = 0; s < kSlices; ++s) {
        const int64_t input = s * args.slice + step + j;
        to[j][o * 8 + s] = o < outputs && input < args.inputs ? WeightAt(args, output + o, input) : 0.0F;
      }
    }
  }
}

inline __m512 WidenPair(__m256i halves, FloatType type) {
  if (type == FloatType::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// 8 steps of two outputs with 16-bit weights: an 8 x 8 transpose in each 128-bit half, three rounds of unpack.
inline void Expand8Half(const MatmulArgs& args, int64_t output, int64_t step, float (*to)[16]) {
  const uint8_t* first = args.weight + 2 * (output * args.row_stride + step);
  const uint8_t* second = first + 2 * args.row_stride;
  __m256i a[8];
  __m256i b[8];
  for (int s = 0; s < 8; ++s) {
    const int64_t offset = 2 * s * args.slice;
    a[s] = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first + offset))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(second + offset)), 1);
  }
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm256_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm256_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    a[4 * i] = _mm256_unpacklo_epi32(b[4 * i], b[4 * i + 2]);
    a[4 * i + 1] = _mm256_unpackhi_epi32(b[4 * i], b[4 * i + 2]);
    a[4 * i + 2] = _mm256_unpacklo_epi32(b[4 * i + 1], b[4 * i + 3]);
    a[4 * i + 3] = _mm256_unpackhi_epi32(b[4 * i + 1], b[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm256_unpacklo_epi64(a[i], a[i + 4]);
    b[2 * i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 4]);
  }
  for (int j = 0; j < 8; ++j) _mm512_store_ps(to[j], WidenPair(b[j], args.type));
}

// 8 steps of one output with f32 weights: an 8 x 8 transpose.
inline void Expand8Float(const MatmulArgs& args, int64_t output, int64_t step, float (*to)[16], int64_t half) {
  const uint8_t* first = args.weight + 4 * (output * args.row_stride + step);
  __m256 a[8];
  __m256 b[8];
  for (int s = 0; s < 8; ++s) a[s] = _mm256_loadu_ps(reinterpret_cast<const float*>(first + 4 * s * args.slice));
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    a[4 * i] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0x44);
    a[4 * i + 1] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0xEE);
    a[4 * i + 2] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0x44);
    a[4 * i + 3] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0xEE);
  }
  for (int j = 0; j < 4; ++j) {
    _mm256_store_ps(to[j] + half * 8, _mm256_permute2f128_ps(a[j], a[j + 4], 0x20));
    _mm256_store_ps(to[j + 4] + half * 8, _mm256_permute2f128_ps(a[j], a[j + 4], 0x31));
  }
}

// Steps [step, step + steps) of outputs output, output + 1.
void Expand(const MatmulArgs& args, int64_t output, int64_t outputs, int64_t step, int64_t steps, float (*to)[16]) {
  int64_t j = 0;
  if (outputs >= 2) {
    // Whole groups of 8 steps whose last slice still lies inside the inputs.
    for (; j + 8 <= steps && 7 * args.slice + step + j + 8 <= args.inputs; j += 8) {
      if (args.type == FloatType::kF32) {
        Expand8Float(args, output, step + j, to + j, 0);
        Expand8Float(args, output + 1, step + j, to + j, 1);
      } else {
        Expand8Half(args, output, step + j, to + j);
      }
    }
  }
  if (j < steps) ExpandSlow(args, output, outputs, step + j, steps - j, to + j);
}

// Adds `steps` fused products to the sums of kRows rows and both pairs.
template <int64_t kRows>
inline void Multiply(const MatmulArgs& args, int64_t row, int64_t step, int64_t steps, Panel& panel) {
  __m512 sums[kRows][2];
  const float* x = args.packed + (row * args.slice + step) * kSlices;
  const int64_t x_stride = args.slice * kSlices;
  for (int64_t r = 0; r < kRows; ++r) {
    sums[r][0] = _mm512_load_ps(panel.sums[row + r][0]);
    sums[r][1] = _mm512_load_ps(panel.sums[row + r][1]);
  }
  for (int64_t j = 0; j < steps; ++j) {
    const __m512 w0 = _mm512_load_ps(panel.weights[0][j]);
    const __m512 w1 = _mm512_load_ps(panel.weights[1][j]);
    for (int64_t r = 0; r < kRows; ++r) {
      const __m512 both = _mm512_broadcast_f32x8(_mm256_loadu_ps(x + r * x_stride + j * kSlices));
      sums[r][0] = _mm512_fmadd_ps(both, w0, sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(both, w1, sums[r][1]);
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    _mm512_store_ps(panel.sums[row + r][0], sums[r][0]);
    _mm512_store_ps(panel.sums[row + r][1], sums[r][1]);
  }
}

void MultiplyRows(const MatmulArgs& args, int64_t step, int64_t steps, Panel& panel) {
  int64_t row = 0;
  for (; row + kRowBlock <= args.rows; row += kRowBlock) Multiply<kRowBlock>(args, row, step, steps, panel);
  switch (args.rows - row) {
    case 5: Multiply<5>(args, row, step, steps, panel); break;
    case 4: Multiply<4>(args, row, step, steps, panel); break;
    case 3: Multiply<3>(args, row, step, steps, panel); break;
    case 2: Multiply<2>(args, row, step, steps, panel); break;
    case 1: Multiply<1>(args, row, step, steps, panel); break;
    default: break;
  }
}

// ((0+1)+(2+3))+((4+5)+(6+7)) of four outputs at once: two rounds of horizontal adds, then low half + high half.
inline __m128 Reduce(const float (*sums)[16]) {
  const __m256 o0 = _mm256_load_ps(sums[0]);
  const __m256 o1 = _mm256_load_ps(sums[0] + 8);
  const __m256 o2 = _mm256_load_ps(sums[1]);
  const __m256 o3 = _mm256_load_ps(sums[1] + 8);
  const __m256 quads = _mm256_hadd_ps(_mm256_hadd_ps(o0, o1), _mm256_hadd_ps(o2, o3));
  return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}

void Finish(const MatmulArgs& args, int64_t output, int64_t outputs, const Panel& panel) {
  const auto mask = static_cast<__mmask8>((1U << outputs) - 1U);
  for (int64_t r = 0; r < args.rows; ++r) {
    __m128 value = Reduce(panel.sums[r]);
    if (args.bias != nullptr) value = _mm_add_ps(value, _mm_maskz_loadu_ps(mask, args.bias + output));
    float* out = args.out + r * args.out_stride + output;
    if (args.add) value = _mm_add_ps(_mm_maskz_loadu_ps(mask, out), value);
    _mm_mask_storeu_ps(out, mask, value);
  }
}

void MatmulRows(const MatmulArgs& args, int64_t output_begin, int64_t output_end, Panel& panel) {
  for (int64_t output = output_begin; output < output_end; output += kOutputs) {
    const int64_t outputs = output_end - output < kOutputs ? output_end - output : kOutputs;
    __builtin_memset(panel.sums, 0, sizeof(panel.sums[0]) * static_cast<uint64_t>(args.rows));
    for (int64_t step = 0; step < args.slice; step += kSteps) {
      const int64_t steps = args.slice - step < kSteps ? args.slice - step : kSteps;
      Expand(args, output, outputs, step, steps, panel.weights[0]);
      Expand(args, output + 2, outputs > 2 ? outputs - 2 : 0, step, steps, panel.weights[1]);
      MultiplyRows(args, step, steps, panel);
    }
    Finish(args, output, outputs, panel);
  }
}

}  // namespace

void MatmulAvx512(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
  Panel panel;
  MatmulArgs part = args;
  for (int64_t row = 0; row < args.rows; row += kMaxRows) {
    part.rows = args.rows - row < kMaxRows ? args.rows - row : kMaxRows;
    part.packed = args.packed + row * args.slice * kSlices;
    part.out = args.out + row * args.out_stride;
    MatmulRows(part, output_begin, output_end, panel);
  }
}

}  // namespace hydrant::kernels
