// SPDX-License-Identifier: Apache-2.0
// What the files of this folder define for its tables (table.cc) and for tests.
#pragma once

#include "kernels/kernel_table.h"

namespace hydrant::kernels {

void PackedMatmulAmx(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
// Quads by tiles where there are enough rows; otherwise the same as PackedMatmulInTurnsAvx512.
void PackedMatmulAmxQuads(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void AttentionAmx(const AttentionArgs& args);       // bf16 by tiles, the other types as AVX-512 does
void AttentionAmxQuads(const AttentionArgs& args);  // the same bits, one column by vectors
extern const PeakEntries kPeakAmx;

}  // namespace hydrant::kernels
