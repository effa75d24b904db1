// SPDX-License-Identifier: Apache-2.0
// Outputs' weights to codes: the arithmetic of the formats, without their layout.
// docs/algorithms/low_bit_weights.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/packed.h"
#include "quant/dictionary.h"

namespace hydrant::quant {

// Scales that are tried for a group. The one with index kScalesBelow is the first that reaches the group's largest
// weight.
inline constexpr int64_t kScalesTried = 4;
inline constexpr int64_t kScalesBelow = 2;
inline constexpr int64_t kTablesTried = kScalesTried * kNumShapes;

// Codes -127 .. 127 with one scale, nearest; returns the scale. `codes` [weights.size()].
float EncodeRowW8(std::span<const float> weights, int8_t* codes);

// Two rows in 4 bits, which share their groups' tables: weight i of row r is
// scales[r] * (dictionary[tables[i / 64]][codes[r][i]] - 128).
struct RowPairW4 {
  std::array<float, 2> scales{};
  std::vector<uint8_t> tables;                // [ceil(I / 64)]
  std::array<std::vector<uint8_t>, 2> codes;  // [I] each, 0 .. 15
};

using RowPair = std::array<std::span<const float>, 2>;  // [I] each

// Finds scales, tables and codes of pairs of rows by least squared error.
class PairEncoderW4 {
 public:
  // `dictionary` [256][16] as DefaultDictionary lays it out: scales ascending, kNumShapes tables each.
  explicit PairEncoderW4(const uint8_t* dictionary);

  // A row below kernels::kZeroRow takes no part in the choice.
  void Encode(const RowPair& rows, RowPairW4& pair) const;

  // The nearest of a table's entries.
  uint8_t NearestCode(uint8_t table, float weight_over_scale) const;
  float Entry(uint8_t table, uint8_t code) const;  // without the bias of 128

 private:
  // One for each table that is tried.
  static constexpr int64_t kVectorTables = 16;
  using Vector [[gnu::vector_size(4 * kVectorTables)]] = float;
  using Sums = std::array<Vector, kTablesTried / kVectorTables>;
  struct RowScale {
    float value = 0, weight = 0;  // value 0: a row of zeros; weight: how much its errors count
  };

  void ChooseTables(const RowPair& rows, RowPairW4& pair) const;
  double TryScales(const RowPair& rows, const std::array<RowScale, 2>& scales, std::vector<uint8_t>& tables) const;
  int64_t FirstTable(float largest) const;
  double AddErrors(std::span<const float> weights, const RowScale& scale, int64_t first, Sums& total) const;
  void EncodeGroup(std::span<const float> weights, float scale, uint8_t table, uint8_t* codes) const;

  const uint8_t* dictionary_;
  std::vector<float> errors_;      // [kGridPoints][256]: squared distance of a grid point to the nearest entry
  std::vector<float> thresholds_;  // [256][16]: code c begins above thresholds_[c - 1]; the last one is unused
  std::vector<float> scales_;      // [kNumScales]
};

// The encoder of the default dictionary.
const PairEncoderW4& DefaultEncoderW4();

}  // namespace hydrant::quant
