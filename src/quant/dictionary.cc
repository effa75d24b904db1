// SPDX-License-Identifier: Apache-2.0
#include "quant/dictionary.h"

#include <array>
#include <cmath>

namespace hydrant::quant {
namespace {

// Positive half of the 16 levels that represent a standard normal with the least squared error (S. Lloyd, "Least
// squares quantization in PCM", 1982; J. Max, 1960).
constexpr std::array<double, 8> kLevels = {0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326};
constexpr std::array<double, kNumSkews> kSkews = {-0.12, -0.04, 0.04, 0.12};
constexpr double kSmallestScale = 6.0;
// (127 / 6) ^ (1 / 63), so that products of literals give the same scales with every library.
constexpr double kScaleStep = 1.0496441815451685;

struct alignas(64) Tables {
  uint8_t entries[kernels::kNumTables][kernels::kTableEntries];
};

// Level `index` of 16 in [-1, 1], bent towards one side: the ends stay.
double Level(int64_t index, double skew) {
  const auto half = static_cast<size_t>(index < 8 ? 7 - index : index - 8);
  const double u = (index < 8 ? -kLevels[half] : kLevels[half]) / kLevels.back();
  return u + skew * (1 - u * u);
}

Tables MakeTables() {
  Tables tables{};
  for (int64_t scale = 0; scale < kNumScales; ++scale) {
    for (int64_t skew = 0; skew < kNumSkews; ++skew) {
      for (int64_t i = 0; i < kernels::kTableEntries; ++i) {
        const double entry = std::nearbyint(ScaleOf(scale) * Level(i, kSkews[static_cast<size_t>(skew)]));
        tables.entries[scale * kNumSkews + skew][i] = static_cast<uint8_t>(static_cast<int>(entry) + 128);
      }
    }
  }
  return tables;
}

}  // namespace

double ScaleOf(int64_t scale) {
  if (scale == kNumScales - 1) return 127.0;
  double value = kSmallestScale;
  for (int64_t i = 0; i < scale; ++i) value *= kScaleStep;
  return value;
}

const uint8_t* DefaultDictionary() {
  static const Tables tables = MakeTables();
  return tables.entries[0];
}

}  // namespace hydrant::quant
