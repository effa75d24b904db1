// SPDX-License-Identifier: Apache-2.0
#include "quant/packed_weight.h"

namespace hydrant::quant {

const char* NameOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kStored: return "stored";
    case WeightFormat::kF32: return "f32";
    case WeightFormat::kBF16: return "bf16";
    case WeightFormat::kW8A8: return "w8a8";
    case WeightFormat::kW4A8: return "w4a8";
    case WeightFormat::kW8A16: return "w8a16";
    case WeightFormat::kW4A16: return "w4a16";
  }
  return "?";
}

std::optional<WeightFormat> WeightFormatNamed(std::string_view name) {
  for (const WeightFormat format : {WeightFormat::kStored, WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kW8A8,
                                    WeightFormat::kW4A8, WeightFormat::kW8A16, WeightFormat::kW4A16}) {
    if (name == NameOf(format)) return format;
  }
  return std::nullopt;
}

}  // namespace hydrant::quant
