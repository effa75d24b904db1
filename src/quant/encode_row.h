// SPDX-License-Identifier: Apache-2.0
// One output's weights to codes: the arithmetic of the formats, without their layout.
// docs/algorithms/low_bit_weights.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/packed.h"

namespace hydrant::quant {

// Rows below this are zero, as in the quantisation of activations.
inline constexpr float kZeroRow = 1e-30F;

// Codes -127 .. 127 with one scale, nearest; returns the scale. `codes` [weights.size()].
float EncodeRowW8(std::span<const float> weights, int8_t* codes);

// A row in 4 bits: weight i is scale * (dictionary[tables[i / 64]][codes[i]] - 128).
struct RowW4 {
  float scale = 0;
  std::vector<uint8_t> tables;  // [ceil(I / 64)]
  std::vector<uint8_t> codes;   // [I], 0 .. 15
  std::vector<uint8_t> trial;   // scratch of the search
};

// Finds scales, tables and codes of rows by least squared error, each weight's error counted by its importance.
class RowEncoderW4 {
 public:
  // `dictionary` [256][16] as DefaultDictionary lays it out: scales ascending, kNumSkews tables each.
  explicit RowEncoderW4(const uint8_t* dictionary);

  // `importance` [I]: E[x_i^2] of the inputs; empty = all equal.
  void Encode(std::span<const float> weights, std::span<const float> importance, RowW4& row) const;

  // Scale and tables only, for encoders that choose codes by another rule.
  void ChooseTables(std::span<const float> weights, std::span<const float> importance, RowW4& row) const;

  // The nearest of a table's entries.
  uint8_t NearestCode(uint8_t table, float weight_over_scale) const;
  float Entry(uint8_t table, uint8_t code) const;  // without the bias of 128

 private:
  double TryScale(std::span<const float> weights, std::span<const float> importance, float scale,
                  std::vector<uint8_t>& tables) const;
  double ChooseTable(const float* weights, const float* importance, int64_t count, float scale, uint8_t& table) const;
  void EncodeGroup(const float* weights, int64_t count, float scale, uint8_t table, uint8_t* codes) const;

  const uint8_t* dictionary_;
  std::vector<float> errors_;      // [kGridPoints][256]: squared distance of a grid point to the nearest entry
  std::vector<float> thresholds_;  // [256][16]: code c begins above thresholds_[c - 1]; the last one is unused
  std::vector<float> scales_;      // [kNumScales]
};

// The encoder of the default dictionary.
const RowEncoderW4& DefaultEncoderW4();

}  // namespace hydrant::quant
