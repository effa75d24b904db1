// SPDX-License-Identifier: Apache-2.0
// Loops that are compiled for one CPU target: plain data only, called where the machine has the target.
#pragma once

#include <cstdint>

#include "kernels/arguments.h"

namespace hydrant::micro {

// `count` lines of 128 codes, [count][2] table numbers -> [count][2][64].
void ExpandByVpermb(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary, int64_t count,
                    uint8_t* out);
void ExpandByVpshufb(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary, int64_t count,
                     uint8_t* out);
// The epilogue of one tile of sums, [16 outputs][16 rows].
void FinishTileByAvx512(const kernels::PackedMatmulArgs& args, const kernels::RowBlock& block, const int32_t* sums);

}  // namespace hydrant::micro
