// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/amx/entries.h"
#include "kernels/amx/tiles_instructions.h"

namespace hydrant::kernels {
namespace {

#include "kernels/amx/peak_inl.h"
#include "kernels/avx512/peak_inl.h"

constexpr PeakLoop kLoops[] = {{PeakType::kF32, "vfmadd zmm", Multiply<F32>},
                               {PeakType::kBF16, "vdpbf16ps", Multiply<BF16>},
                               {PeakType::kInt8, "tdpbusd", MultiplyTiles<TileInstructions>}};

}  // namespace

constinit const PeakEntries kPeakAmx = {ReadLines, kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace hydrant::kernels
