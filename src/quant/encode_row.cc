// SPDX-License-Identifier: Apache-2.0
#include "quant/encode_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "quant/dictionary.h"

// The search over tables takes most of the time to pack a matrix in 4 bits: AMD Zen 4, two threads, 6.6 G weights in
// 130 s, 145 s without wider vectors (8 bits: 23 s). The order of additions is the same for every width, so are the
// bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define HYDRANT_WIDER_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HYDRANT_WIDER_VECTORS
#endif

namespace hydrant::quant {
namespace {

using kernels::kGroupInputs;
using kernels::kNumTables;
using kernels::kTableEntries;

// Tables are compared on a grid of half steps of the int8 stage; codes are then taken from the weights themselves.
// On Gaussian rows this loses 0.1 % of squared error against comparing exactly.
constexpr int64_t kGridLimit = 254;
constexpr int64_t kGridPoints = 2 * kGridLimit + 1;

// Scales that are tried for a group; the first that reaches its largest weight is at kScalesBelow. In Gaussian and
// Student t rows the best of all is 5 below to 4 above, in 99 % of the groups 4 below to 1 above.
constexpr int64_t kScalesTried = 9;
constexpr int64_t kScalesBelow = 6;
constexpr int64_t kTablesTried = kScalesTried * kNumSkews;

// Parts of the largest weight that become 127: with an outlier in the row a smaller part serves the other groups
// better.
constexpr std::array<float, 14> kClips = {1.0F, 0.95F, 0.9F,  0.85F, 0.8F, 0.75F, 0.7F,
                                          0.6F, 0.5F,  0.42F, 0.35F, 0.3F, 0.25F, 0.2F};
// The search ends after so many clips in a row that were worse than the best.
constexpr int kPatience = 2;

float LargestMagnitude(std::span<const float> weights) {
  float largest = 0;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  return largest;
}

// Nearest, ties to even, for magnitudes below 2^22: the sum leaves the integer in the low bits.
int32_t Round(float value) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23
  return std::bit_cast<int32_t>(value + kShift) - std::bit_cast<int32_t>(kShift);
}

int64_t GridPoint(float value) { return Round(2 * std::clamp(value, -127.0F, 127.0F)) + kGridLimit; }

}  // namespace

float EncodeRowW8(std::span<const float> weights, int8_t* codes) {
  const float largest = LargestMagnitude(weights);
  if (largest < kZeroRow) {
    std::fill_n(codes, weights.size(), int8_t{0});
    return 0;
  }
  const float factor = 127.0F / largest;
  for (size_t i = 0; i < weights.size(); ++i) codes[i] = static_cast<int8_t>(Round(weights[i] * factor));
  return largest / 127.0F;
}

RowEncoderW4::RowEncoderW4(const uint8_t* dictionary) : dictionary_(dictionary) {
  errors_.resize(static_cast<size_t>(kGridPoints * kNumTables));
  thresholds_.resize(static_cast<size_t>(kNumTables * kTableEntries));
  for (int64_t scale = 0; scale < kNumScales; ++scale) scales_.push_back(static_cast<float>(ScaleOf(scale)));
  for (int64_t t = 0; t < kNumTables; ++t) {
    const auto table = static_cast<uint8_t>(t);
    float* thresholds = &thresholds_[static_cast<size_t>(t * kTableEntries)];
    for (int64_t c = 0; c + 1 < kTableEntries; ++c) {
      thresholds[c] = (Entry(table, static_cast<uint8_t>(c)) + Entry(table, static_cast<uint8_t>(c + 1))) / 2;
    }
    for (int64_t g = 0; g < kGridPoints; ++g) {
      const float value = static_cast<float>(g - kGridLimit) / 2;
      const float distance = value - Entry(table, NearestCode(table, value));
      errors_[static_cast<size_t>(g * kNumTables + t)] = distance * distance;
    }
  }
}

float RowEncoderW4::Entry(uint8_t table, uint8_t code) const {
  return static_cast<float>(dictionary_[table * kTableEntries + code]) - 128;
}

uint8_t RowEncoderW4::NearestCode(uint8_t table, float weight_over_scale) const {
  const float* thresholds = &thresholds_[static_cast<size_t>(table) * kTableEntries];
  int code = 0;
  for (int64_t c = 0; c + 1 < kTableEntries; ++c) code += weight_over_scale > thresholds[c] ? 1 : 0;
  return static_cast<uint8_t>(code);
}

HYDRANT_WIDER_VECTORS
void RowEncoderW4::EncodeGroup(const float* weights, int64_t count, float scale, uint8_t table, uint8_t* codes) const {
  const float* thresholds = &thresholds_[static_cast<size_t>(table) * kTableEntries];
  const float factor = 1 / scale;
  std::array<int32_t, kGroupInputs> found{};
  std::array<float, kGroupInputs> scaled{};
  for (int64_t i = 0; i < count; ++i) scaled[static_cast<size_t>(i)] = weights[i] * factor;
  for (int64_t c = 0; c + 1 < kTableEntries; ++c) {
    for (size_t i = 0; i < scaled.size(); ++i) found[i] += scaled[i] > thresholds[c] ? 1 : 0;
  }
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(found[static_cast<size_t>(i)]);
}

// Returns the group's squared error in units of scale^2.
HYDRANT_WIDER_VECTORS
double RowEncoderW4::ChooseTable(const float* weights, const float* importance, int64_t count, float scale,
                                 uint8_t& table) const {
  const float factor = 1 / scale;
  const float largest = LargestMagnitude({weights, static_cast<size_t>(count)}) * factor;
  int64_t reach = 0;
  while (reach + 1 < kNumScales && scales_[static_cast<size_t>(reach)] < largest) ++reach;
  const int64_t first = std::clamp(reach - kScalesBelow, int64_t{0}, kNumScales - kScalesTried) * kNumSkews;

  std::array<float, kTablesTried> sums{};
  double clipped = 0;  // what lies beyond 127 is lost with every table
  for (int64_t i = 0; i < count; ++i) {
    const float value = weights[i] * factor;
    const float part = importance != nullptr ? importance[i] : 1.0F;
    const float beyond = std::max(std::fabs(value) - 127, 0.0F);
    clipped += static_cast<double>(part * beyond * beyond);
    const float* errors = &errors_[static_cast<size_t>(GridPoint(value) * kNumTables + first)];
    for (size_t t = 0; t < sums.size(); ++t) sums[t] += part * errors[t];
  }
  const auto best = std::min_element(sums.begin(), sums.end());
  table = static_cast<uint8_t>(first + (best - sums.begin()));
  return clipped + static_cast<double>(*best);
}

double RowEncoderW4::TryScale(std::span<const float> weights, std::span<const float> importance, float scale,
                              std::vector<uint8_t>& tables) const {
  const auto inputs = static_cast<int64_t>(weights.size());
  tables.resize(static_cast<size_t>((inputs + kGroupInputs - 1) / kGroupInputs));
  double error = 0;
  for (int64_t begin = 0; begin < inputs; begin += kGroupInputs) {
    const int64_t count = std::min(kGroupInputs, inputs - begin);
    error += ChooseTable(&weights[static_cast<size_t>(begin)],
                         importance.empty() ? nullptr : &importance[static_cast<size_t>(begin)], count, scale,
                         tables[static_cast<size_t>(begin / kGroupInputs)]);
  }
  return error * static_cast<double>(scale) * static_cast<double>(scale);
}

void RowEncoderW4::ChooseTables(std::span<const float> weights, std::span<const float> importance, RowW4& row) const {
  const float largest = LargestMagnitude(weights);
  if (largest < kZeroRow) {
    row.scale = 0;
    row.tables.assign((weights.size() + kGroupInputs - 1) / kGroupInputs, 0);
    return;
  }
  double best = std::numeric_limits<double>::infinity();
  int worse = 0;
  for (const float clip : kClips) {
    const float scale = largest * clip / 127.0F;
    const double error = TryScale(weights, importance, scale, row.trial);
    if (error < best) {
      best = error;
      row.scale = scale;
      row.tables = row.trial;
      worse = 0;
    } else if (++worse == kPatience) {
      break;
    }
  }
}

void RowEncoderW4::Encode(std::span<const float> weights, std::span<const float> importance, RowW4& row) const {
  ChooseTables(weights, importance, row);
  row.codes.resize(weights.size());
  if (row.scale == 0.0F) {
    std::fill(row.codes.begin(), row.codes.end(), NearestCode(0, 0));
    return;
  }
  for (size_t g = 0; g < row.tables.size(); ++g) {
    const size_t begin = g * kGroupInputs;
    const size_t count = std::min<size_t>(kGroupInputs, weights.size() - begin);
    EncodeGroup(&weights[begin], static_cast<int64_t>(count), row.scale, row.tables[g], &row.codes[begin]);
  }
}

const RowEncoderW4& DefaultEncoderW4() {
  static const RowEncoderW4 encoder(DefaultDictionary());
  return encoder;
}

}  // namespace hydrant::quant
