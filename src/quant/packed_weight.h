// SPDX-License-Identifier: Apache-2.0
// Weight formats, and a weight matrix in the packed layout of kernels/packed.h: made from floats or mapped from a
// converted file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/packed.h"

namespace hydrant::quant {

// What weights are kept in, and what their matmuls' inputs are rounded to (docs/algorithms/low_bit_weights.md).
enum class WeightFormat : uint8_t {
  kStored,  // the file's own floats, f32 activations
  kF32,
  kBF16,
  kW8A8,   // int8 per output row, int8 activations per row
  kW4A8,   // progressive 4-bit under int8, int8 activations
  kW8A16,  // as w8a8 with activations in two int8 planes
  kW4A16,
};

inline constexpr bool IsPacked(WeightFormat format) { return format >= WeightFormat::kW8A8; }
inline constexpr bool HasTwoPlanes(WeightFormat format) {
  return format == WeightFormat::kW8A16 || format == WeightFormat::kW4A16;
}

inline constexpr bool Is4Bit(WeightFormat format) {
  return format == WeightFormat::kW4A8 || format == WeightFormat::kW4A16;
}

// "stored", "f32", "bf16", "w8a8", "w4a8", "w8a16", "w4a16".
const char* NameOf(WeightFormat format);
// Nothing for any other name.
std::optional<WeightFormat> WeightFormatNamed(std::string_view name);

struct PackedWeight {
  kernels::PackedMatrix matrix;
  WeightFormat format = WeightFormat::kW8A8;
  std::shared_ptr<const void> owner;  // what keeps the panels, scales and dictionary alive
  std::string file, name;             // of one from a converted file: for errors
};

}  // namespace hydrant::quant
