// SPDX-License-Identifier: Apache-2.0
// f32 matmul with f32, bf16 or f16 weights. A ymm holds one step j of one output: its lanes are the 8 input slices.
// Weights are transposed from 8 slice streams into that shape once per block of steps and used by all rows; a row's
// order of additions is the portable twin's.
#include <immintrin.h>

#include <cstdint>

#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

constexpr int64_t kOutputs = 4;   // of one panel
constexpr int64_t kSteps = 64;    // of one block: 4 outputs * 64 * 32 bytes = 8 KiB
constexpr int64_t kRowBlock = 3;  // 4 outputs * 3 rows = 12 of 16 registers are sums
constexpr int64_t kMaxRows = 64;  // sums kept between blocks of steps

struct Panel {
  alignas(64) float weights[kOutputs][kSteps][8];
  alignas(64) float sums[kMaxRows][kOutputs][8];
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

void ExpandSlow(const MatmulArgs& args, int64_t output, int64_t step, int64_t steps, float (*to)[8]) {
  for (int64_t j = 0; j < steps; ++j) {
    for (int64_t s = 0; s < kSlices; ++s) {
      const int64_t input = s * args.slice + step + j;
      to[j][s] = input < args.inputs ? WeightAt(args, output, input) : 0.0F;
    }
  }
}

inline __m256 WidenHalf(__m128i halves, FloatType type) {
  if (type == FloatType::kF16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// 8 steps of one output with 16-bit weights: an 8 x 8 transpose in three rounds of unpack.
inline void Expand8Half(const MatmulArgs& args, int64_t output, int64_t step, float (*to)[8]) {
  const uint8_t* first = args.weight + 2 * (output * args.row_stride + step);
  __m128i a[8];
  __m128i b[8];
  for (int s = 0; s < 8; ++s) a[s] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + 2 * s * args.slice));
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    a[4 * i] = _mm_unpacklo_epi32(b[4 * i], b[4 * i + 2]);
    a[4 * i + 1] = _mm_unpackhi_epi32(b[4 * i], b[4 * i + 2]);
    a[4 * i + 2] = _mm_unpacklo_epi32(b[4 * i + 1], b[4 * i + 3]);
    a[4 * i + 3] = _mm_unpackhi_epi32(b[4 * i + 1], b[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_store_ps(to[2 * i], WidenHalf(_mm_unpacklo_epi64(a[i], a[i + 4]), args.type));
    _mm256_store_ps(to[2 * i + 1], WidenHalf(_mm_unpackhi_epi64(a[i], a[i + 4]), args.type));
  }
}

// 8 steps of one output with f32 weights: an 8 x 8 transpose.
inline void Expand8Float(const MatmulArgs& args, int64_t output, int64_t step, float (*to)[8]) {
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
    _mm256_store_ps(to[j], _mm256_permute2f128_ps(a[j], a[j + 4], 0x20));
    _mm256_store_ps(to[j + 4], _mm256_permute2f128_ps(a[j], a[j + 4], 0x31));
  }
}

void Expand(const MatmulArgs& args, int64_t output, int64_t step, int64_t steps, float (*to)[8]) {
  int64_t j = 0;
  for (; j + 8 <= steps && 7 * args.slice + step + j + 8 <= args.inputs; j += 8) {
    if (args.type == FloatType::kF32) {
      Expand8Float(args, output, step + j, to + j);
    } else {
      Expand8Half(args, output, step + j, to + j);
    }
  }
  if (j < steps) ExpandSlow(args, output, step + j, steps - j, to + j);
}

template <int64_t kRows>
inline void Multiply(const MatmulArgs& args, int64_t row, int64_t step, int64_t steps, Panel& panel) {
  __m256 sums[kRows][kOutputs];
  const float* x = args.packed + (row * args.slice + step) * kSlices;
  const int64_t x_stride = args.slice * kSlices;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t o = 0; o < kOutputs; ++o) sums[r][o] = _mm256_load_ps(panel.sums[row + r][o]);
  }
  for (int64_t j = 0; j < steps; ++j) {
    __m256 inputs[kRows];
    for (int64_t r = 0; r < kRows; ++r) inputs[r] = _mm256_loadu_ps(x + r * x_stride + j * kSlices);
    for (int64_t o = 0; o < kOutputs; ++o) {
      const __m256 w = _mm256_load_ps(panel.weights[o][j]);
      for (int64_t r = 0; r < kRows; ++r) sums[r][o] = _mm256_fmadd_ps(inputs[r], w, sums[r][o]);
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t o = 0; o < kOutputs; ++o) _mm256_store_ps(panel.sums[row + r][o], sums[r][o]);
  }
}

void MultiplyRows(const MatmulArgs& args, int64_t step, int64_t steps, Panel& panel) {
  int64_t row = 0;
  for (; row + kRowBlock <= args.rows; row += kRowBlock) Multiply<kRowBlock>(args, row, step, steps, panel);
  if (args.rows - row == 2) Multiply<2>(args, row, step, steps, panel);
  if (args.rows - row == 1) Multiply<1>(args, row, step, steps, panel);
}

// ((0+1)+(2+3))+((4+5)+(6+7)) of four outputs at once.
inline __m128 Reduce(const float (*sums)[8]) {
  const __m256 pairs01 = _mm256_hadd_ps(_mm256_load_ps(sums[0]), _mm256_load_ps(sums[1]));
  const __m256 pairs23 = _mm256_hadd_ps(_mm256_load_ps(sums[2]), _mm256_load_ps(sums[3]));
  const __m256 quads = _mm256_hadd_ps(pairs01, pairs23);
  return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}

void Finish(const MatmulArgs& args, int64_t output, int64_t outputs, const Panel& panel) {
  for (int64_t r = 0; r < args.rows; ++r) {
    alignas(16) float total[kOutputs];
    _mm_store_ps(total, Reduce(panel.sums[r]));
    float* out = args.out + r * args.out_stride + output;
    for (int64_t o = 0; o < outputs; ++o) {
      const float value = args.bias != nullptr ? total[o] + args.bias[output + o] : total[o];
      out[o] = args.add ? out[o] + value : value;
    }
  }
}

void MatmulRows(const MatmulArgs& args, int64_t output_begin, int64_t output_end, Panel& panel) {
  for (int64_t output = output_begin; output < output_end; output += kOutputs) {
    const int64_t outputs = output_end - output < kOutputs ? output_end - output : kOutputs;
    __builtin_memset(panel.sums, 0, sizeof(panel.sums[0]) * static_cast<uint64_t>(args.rows));
    for (int64_t step = 0; step < args.slice; step += kSteps) {
      const int64_t steps = args.slice - step < kSteps ? args.slice - step : kSteps;
      for (int64_t o = 0; o < outputs; ++o) Expand(args, output + o, step, steps, panel.weights[o]);
      for (int64_t o = outputs; o < kOutputs; ++o) __builtin_memset(panel.weights[o], 0, sizeof(panel.weights[o]));
      MultiplyRows(args, step, steps, panel);
    }
    Finish(args, output, outputs, panel);
  }
}

}  // namespace

void MatmulAvx2(const MatmulArgs& args, int64_t output_begin, int64_t output_end) {
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
