// SPDX-License-Identifier: Apache-2.0
#include "train/fit/loss_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

// Wider vectors. The order of additions does not depend on their width, so the bits do not either.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define HYDRANT_WIDER_VECTORS __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define HYDRANT_WIDER_VECTORS
#endif

namespace hydrant::train {
namespace {

constexpr int64_t kLanes = 16;  // of sums and maxima

// All of it is inlined into the functions below, which are compiled once for each width of vectors.

using Lanes = std::array<float, kLanes>;

[[gnu::always_inline]] inline float Widened(float value) { return value; }
[[gnu::always_inline]] inline float Widened(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

[[gnu::always_inline]] inline void Narrow(float value, float& out) { out = value; }
// To the nearest, ties to even. Gradients of a softmax are finite.
[[gnu::always_inline]] inline void Narrow(float value, uint16_t& out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  out = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// exp(x) for x <= 0, off by less than 2 units of the last place; below -87 it is 0. The polynomial of Cephes' expf.
[[gnu::always_inline]] inline float ExpOfNegative(float x) {
  const float clamped = std::max(x, -87.0F);
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: the sum leaves the integer in the low bits
  const float shifted = clamped * 1.44269504F + kShift;
  const float whole = shifted - kShift;
  const float rest = (clamped - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float value = 1.9875691500e-4F;
  value = value * rest + 1.3981999507e-3F;
  value = value * rest + 8.3334519073e-3F;
  value = value * rest + 4.1665795894e-2F;
  value = value * rest + 1.6666665459e-1F;
  value = value * rest + 5.0000001201e-1F;
  value = value * rest * rest + rest + 1;
  const auto exponent = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kShift) + 127) << 23;
  return x < -87.0F ? 0.0F : value * std::bit_cast<float>(exponent);
}

// Widens a row into `wide`. Returns the largest logit, and sets `expected` to the teacher's mean of them.
template <typename Number>
[[gnu::always_inline]] inline float Widen(const Number* logits, const float* bias, const float* teacher, int64_t count,
                                          float* wide, double& expected) {
  Lanes most, mean = {};
  most.fill(-INFINITY);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) wide[i + l] = Widened(logits[i + l]) + (bias != nullptr ? bias[i + l] : 0.0F);
    for (int64_t l = 0; l < kLanes; ++l) most[l] = std::max(most[l], wide[i + l]);
    if (teacher == nullptr) continue;
    for (int64_t l = 0; l < kLanes; ++l) mean[l] += teacher[i + l] * wide[i + l];
  }
  for (; i < count; ++i) {
    wide[i] = Widened(logits[i]) + (bias != nullptr ? bias[i] : 0.0F);
    most[0] = std::max(most[0], wide[i]);
    if (teacher != nullptr) mean[0] += teacher[i] * wide[i];
  }
  for (const float part : mean) expected += part;
  return *std::max_element(most.begin(), most.end());
}

// Replaces each by its exponential over that of `most`. Returns their sum.
[[gnu::always_inline]] inline float Exponentials(float* wide, int64_t count, float most) {
  Lanes sums = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) wide[i + l] = ExpOfNegative(wide[i + l] - most);
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += wide[i + l];
  }
  for (; i < count; ++i) sums[0] += wide[i] = ExpOfNegative(wide[i] - most);
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

template <typename Number>
[[gnu::always_inline]] inline RowLoss LossOf(std::span<Number> logits, const float* bias, const RowTarget& target,
                                             bool with_gradient, float* wide) {
  const auto count = static_cast<int64_t>(logits.size());
  const float* teacher = target.teacher;
  double expected = 0;
  const float most = Widen(logits.data(), bias, teacher, count, wide, expected);
  const double label_logit = target.label >= 0 ? wide[target.label] : 0;
  const float sum = Exponentials(wide, count, most);
  const double log_sum = static_cast<double>(most) + std::log(static_cast<double>(sum));
  const RowLoss loss{.label = target.label >= 0 ? log_sum - label_logit : 0,
                     .teacher = teacher != nullptr ? log_sum - expected : 0};
  if (!with_gradient) return loss;
  const bool has_label = target.label >= 0;
  const double total = (has_label ? target.label_weight : 0) + (teacher != nullptr ? target.teacher_weight : 0);
  const auto slope = static_cast<float>(total * target.scale / static_cast<double>(sum));
  const auto pull = static_cast<float>(target.teacher_weight * target.scale);
  const float of_label = has_label ? wide[target.label] : 0;
  Number* out = logits.data();
  if (teacher != nullptr) {
    for (int64_t i = 0; i < count; ++i) Narrow(slope * wide[i] - pull * teacher[i], out[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) Narrow(slope * wide[i], out[i]);
  }
  if (!has_label) return loss;
  const float rest = slope * of_label - (teacher != nullptr ? pull * teacher[target.label] : 0.0F);
  Narrow(rest - static_cast<float>(target.label_weight * target.scale), out[target.label]);
  return loss;
}

}  // namespace

HYDRANT_WIDER_VECTORS RowLoss LossOfRow(std::span<float> logits, const float* bias, const RowTarget& target,
                                        bool with_gradient, float* scratch) {
  return LossOf(logits, bias, target, with_gradient, scratch);
}

HYDRANT_WIDER_VECTORS RowLoss LossOfRow(std::span<uint16_t> logits, const float* bias, const RowTarget& target,
                                        bool with_gradient, float* scratch) {
  return LossOf(logits, bias, target, with_gradient, scratch);
}

}  // namespace hydrant::train
