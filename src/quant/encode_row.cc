// SPDX-License-Identifier: Apache-2.0
#include "quant/encode_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/dictionary.h"

// Wider vectors for the search over tables, which takes most of the time of packing in 4 bits: 6.6 G weights took 130 s
// with them and 145 s without (AMD Zen 4, two threads; 23 s in 8 bits). The order of additions does not depend on the
// width of vectors, so the bits do not either.
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

// To compare tables, weights are rounded to a grid of half steps of the int8 stage. The codes are then taken from the
// weights themselves. On Gaussian rows the squared error is 0.1 % larger than with exact comparisons.
constexpr int64_t kGridLimit = 254;
constexpr int64_t kGridPoints = 2 * kGridLimit + 1;

// Shares of the largest weight that may be mapped to 127. Where a row has an outlier, a smaller share serves the other
// groups better.
constexpr std::array<float, 14> kClips = {1.0F, 0.95F, 0.9F,  0.85F, 0.8F, 0.75F, 0.7F,
                                          0.6F, 0.5F,  0.42F, 0.35F, 0.3F, 0.25F, 0.2F};
// The two rows of a pair share tables. Beside a row with few large weights, the other row's scale is at most so many
// times what it needs by itself: an eighth of 127 still holds 16 levels well.
constexpr float kMostApart = 8;
constexpr float kHugeWeight = 0x1p100F, kHugeUnit = 0x1p12F;
// The search ends after so many shares in a row that were worse than the best one.
constexpr int kPatience = 2;

float LargestMagnitude(std::span<const float> weights) {
  float largest = 0;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  return largest;
}

float RootMeanSquare(std::span<const float> weights) {
  double sum = 0;
  for (const float w : weights) sum += static_cast<double>(w) * static_cast<double>(w);
  return static_cast<float>(std::sqrt(sum / static_cast<double>(weights.size())));
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
  if (largest < kernels::kZeroRow) {
    std::fill_n(codes, weights.size(), int8_t{0});
    return 0;
  }
  const float factor = 127.0F / largest;
  for (size_t i = 0; i < weights.size(); ++i) codes[i] = static_cast<int8_t>(Round(weights[i] * factor));
  return largest / 127.0F;
}

PairEncoderW4::PairEncoderW4(const uint8_t* dictionary) : dictionary_(dictionary) {
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

float PairEncoderW4::Entry(uint8_t table, uint8_t code) const {
  return static_cast<float>(dictionary_[table * kTableEntries + code]) - 128;
}

uint8_t PairEncoderW4::NearestCode(uint8_t table, float weight_over_scale) const {
  const float* thresholds = &thresholds_[static_cast<size_t>(table) * kTableEntries];
  int code = 0;
  for (int64_t c = 0; c + 1 < kTableEntries; ++c) code += weight_over_scale > thresholds[c] ? 1 : 0;
  return static_cast<uint8_t>(code);
}

HYDRANT_WIDER_VECTORS
void PairEncoderW4::EncodeGroup(std::span<const float> weights, float scale, uint8_t table, uint8_t* codes) const {
  const float* thresholds = &thresholds_[static_cast<size_t>(table) * kTableEntries];
  const float factor = 1 / scale;
  std::array<int32_t, kGroupInputs> found{};
  std::array<float, kGroupInputs> scaled{};
  for (size_t i = 0; i < weights.size(); ++i) scaled[i] = weights[i] * factor;
  for (int64_t c = 0; c + 1 < kTableEntries; ++c) {
    for (size_t i = 0; i < scaled.size(); ++i) found[i] += scaled[i] > thresholds[c] ? 1 : 0;
  }
  for (size_t i = 0; i < weights.size(); ++i) codes[i] = static_cast<uint8_t>(found[i]);
}

// The first table to try for a group whose largest weight is `largest` times the scale.
int64_t PairEncoderW4::FirstTable(float largest) const {
  int64_t reach = 0;
  while (reach + 1 < kNumScales && scales_[static_cast<size_t>(reach)] < largest) ++reach;
  return std::clamp(reach - kScalesBelow, int64_t{0}, kNumScales - kScalesTried) * kNumShapes;
}

// Adds to `total`, for each table from `first` on, a group's squared error times scale.weight, in units of scale^2.
// Returns the error of clipping at 127, which is the same for every table. (Sums as vectors stay in registers. An array
// took twice as long, through memory for each weight, or was not vectorised at all.)
HYDRANT_WIDER_VECTORS
double PairEncoderW4::AddErrors(std::span<const float> weights, const RowScale& scale, int64_t first,
                                Sums& total) const {
  const float factor = 1 / scale.value;
  Sums sums = total;
  double clipped = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float value = weights[i] * factor;
    const float beyond = std::max(std::fabs(value) - 127, 0.0F);
    clipped += static_cast<double>(scale.weight * beyond * beyond);
    const float* errors = &errors_[static_cast<size_t>(GridPoint(value) * kNumTables + first)];
    for (Vector& some : sums) {
      Vector of_weight;
      std::memcpy(&of_weight, errors, sizeof(Vector));
      some += scale.weight * of_weight;
      errors += kVectorTables;
    }
  }
  total = sums;
  return clipped;
}

double PairEncoderW4::TryScales(const RowPair& rows, const std::array<RowScale, 2>& scales,
                                std::vector<uint8_t>& tables) const {
  const size_t inputs = rows[0].size();
  tables.clear();
  double error = 0;
  for (size_t begin = 0; begin < inputs; begin += kGroupInputs) {
    const size_t count = std::min<size_t>(kGroupInputs, inputs - begin);
    float largest = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (scales[r].value == 0.0F) continue;
      largest = std::max(largest, LargestMagnitude(rows[r].subspan(begin, count)) / scales[r].value);
    }
    const int64_t first = FirstTable(largest);
    Sums sums{};
    for (size_t r = 0; r < rows.size(); ++r) {
      if (scales[r].value == 0.0F) continue;
      error += AddErrors(rows[r].subspan(begin, count), scales[r], first, sums);
    }
    std::array<float, kTablesTried> sum_of{};
    std::memcpy(sum_of.data(), sums.data(), sizeof(sum_of));
    const auto best = std::min_element(sum_of.begin(), sum_of.end());
    tables.push_back(static_cast<uint8_t>(first + (best - sum_of.begin())));
    error += static_cast<double>(*best);
  }
  return error;
}

// The scales of the two rows are in proportion to their root mean squares, so that one table suits both. Errors count
// relative to a row's mean square, so that a row of small weights does not just get the tables that suit a large one.
void PairEncoderW4::ChooseTables(const RowPair& rows, RowPairW4& pair) const {
  std::array<float, 2> magnitudes{}, sizes{};
  float largest = 0;  // of either row, in units of its root mean square
  for (size_t r = 0; r < rows.size(); ++r) {
    magnitudes[r] = LargestMagnitude(rows[r]);
    if (magnitudes[r] < kernels::kZeroRow) continue;
    sizes[r] = RootMeanSquare(rows[r]);
    largest = std::max(largest, magnitudes[r] / sizes[r]);
  }
  // Dividing by a power of two changes no bits: the largest floats times `largest` or kMostApart would be infinite.
  const float unit = std::max(magnitudes[0], magnitudes[1]) > kHugeWeight ? kHugeUnit : 1;
  for (float& size : sizes) size /= unit;
  for (float& magnitude : magnitudes) magnitude /= unit;
  pair.scales = {};
  pair.tables.assign((rows[0].size() + kGroupInputs - 1) / kGroupInputs, 0);
  if (largest == 0.0F) return;
  double best = std::numeric_limits<double>::infinity();
  int worse = 0;
  std::vector<uint8_t> tables;
  for (const float clip : kClips) {
    std::array<RowScale, 2> scales{};
    for (size_t r = 0; r < rows.size(); ++r) {
      if (sizes[r] == 0.0F) continue;
      const float wide = largest * sizes[r], scale = std::min(wide, kMostApart * magnitudes[r]);
      scales[r] = {scale * (clip / 127.0F) * unit, scale / wide * (scale / wide)};
    }
    const double error = TryScales(rows, scales, tables) * static_cast<double>(clip * clip);
    if (error < best) {
      best = error;
      pair.scales = {scales[0].value, scales[1].value};
      pair.tables.swap(tables);
      worse = 0;
    } else if (++worse == kPatience) {
      break;
    }
  }
}

void PairEncoderW4::Encode(const RowPair& rows, RowPairW4& pair) const {
  ChooseTables(rows, pair);
  for (size_t r = 0; r < rows.size(); ++r) {
    pair.codes[r].assign(rows[r].size(), 0);
    for (size_t g = 0; g < pair.tables.size(); ++g) {
      const size_t begin = g * kGroupInputs, count = std::min<size_t>(kGroupInputs, rows[r].size() - begin);
      if (pair.scales[r] == 0.0F) {
        std::fill_n(&pair.codes[r][begin], count, NearestCode(pair.tables[g], 0));
      } else {
        EncodeGroup(rows[r].subspan(begin, count), pair.scales[r], pair.tables[g], &pair.codes[r][begin]);
      }
    }
  }
}

const PairEncoderW4& DefaultEncoderW4() {
  static const PairEncoderW4 encoder(DefaultDictionary());
  return encoder;
}

}  // namespace hydrant::quant
