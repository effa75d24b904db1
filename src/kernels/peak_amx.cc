// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/amx_tiles_instructions.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/peak_amx_inl.h"

}  // namespace

constinit const PeakLoop kPeakTiles = {PeakType::kInt8, "tdpbusd", MultiplyTiles<TileInstructions>};

}  // namespace hydrant::kernels
