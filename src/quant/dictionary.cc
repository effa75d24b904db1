// SPDX-License-Identifier: Apache-2.0
#include "quant/dictionary.h"

#include <cmath>

namespace hydrant::quant {
namespace {

// Levels in [-1, 1] of the tables' shapes; the first kMirrored shapes are used mirrored, too. They represent groups of
// 2 x 64 weights with the least squared error, where each group takes its best shape at its best scale, scales being a
// tenth apart: Lloyd's iteration ("Least squares quantization in PCM", 1982) with that choice in the loop. The weights
// were 240 rows of 2,048 from a normal distribution, and of Student's t 80 rows with 8 degrees of freedom and 20 with
// 5. The last shape but one is close to the levels that suit a normal distribution best. The last shape is for one
// weight that is much larger than the others.
constexpr int64_t kMirrored = 3;
constexpr double kShapes[kNumShapes - kMirrored][kernels::kTableEntries] = {
    {-0.8518, -0.6554, -0.5079, -0.3887, -0.2834, -0.1877, -0.0980, -0.0098, 0.0777, 0.1679, 0.2636, 0.3666, 0.4794,
     0.6073, 0.7680, 1.0},
    {-0.7383, -0.5685, -0.4387, -0.3289, -0.2316, -0.1420, -0.0589, 0.0241, 0.1074, 0.1930, 0.2841, 0.3846, 0.4984,
     0.6291, 0.7825, 1.0},
    {-0.9211, -0.5449, -0.4009, -0.2935, -0.2058, -0.1268, -0.0541, 0.0167, 0.0860, 0.1582, 0.2348, 0.3179, 0.4164,
     0.5315, 0.6788, 1.0},
    {-1.0, -0.7857, -0.6199, -0.4802, -0.3573, -0.2475, -0.1455, -0.0482, 0.0482, 0.1455, 0.2475, 0.3573, 0.4802,
     0.6199, 0.7857, 1.0},
    {-1.0, -0.4587, -0.3262, -0.2384, -0.1727, -0.1164, -0.0677, -0.0215, 0.0215, 0.0677, 0.1164, 0.1727, 0.2384,
     0.3262, 0.4587, 1.0}};
constexpr double kSmallestScale = 6.0;
// (127 / 6) ^ (1 / 31), so that products of literals give the same scales with every library.
constexpr double kScaleStep = 1.1034762311890731;

struct alignas(64) Tables {
  uint8_t entries[kernels::kNumTables][kernels::kTableEntries];
};

double Level(int64_t shape, int64_t index) {
  if (shape >= 2 * kMirrored) return kShapes[shape - kMirrored][index];
  if (shape % 2 == 0) return kShapes[shape / 2][index];
  return -kShapes[shape / 2][kernels::kTableEntries - 1 - index];
}

Tables MakeTables() {
  Tables tables{};
  for (int64_t scale = 0; scale < kNumScales; ++scale) {
    for (int64_t shape = 0; shape < kNumShapes; ++shape) {
      for (int64_t i = 0; i < kernels::kTableEntries; ++i) {
        const double entry = std::nearbyint(ScaleOf(scale) * Level(shape, i));
        tables.entries[scale * kNumShapes + shape][i] = static_cast<uint8_t>(static_cast<int>(entry) + 128);
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
