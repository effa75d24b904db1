// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/amx_tiles_instructions.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/peak_amx_inl.h"

constexpr PeakLoop kTiles = {PeakType::kInt8, "tdpbusd", MultiplyTiles<TileInstructions>};

}  // namespace

// Reads and floats are avx512's.
PeakEntries PeakAmx() {
  static PeakLoop loops[8];
  PeakEntries entries = PeakAvx512();
  int64_t count = 0;
  for (int64_t l = 0; l < entries.num_loops; ++l) {
    if (entries.loops[l].type != PeakType::kInt8) loops[count++] = entries.loops[l];
  }
  loops[count++] = kTiles;
  entries.loops = loops;
  entries.num_loops = count;
  return entries;
}

}  // namespace hydrant::kernels
