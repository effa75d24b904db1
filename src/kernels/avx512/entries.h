// SPDX-License-Identifier: Apache-2.0
// What the files of this folder define for its own tables (table.cc) and for amx's, which differ from avx512's by the
// use of tiles.
#pragma once

#include "kernels/kernel_table.h"

namespace hydrant::kernels {

void MatmulAvx512(const MatmulArgs& args, int64_t output_begin, int64_t output_end);
void PackLanesAvx512(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed);
void PackedMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulInTurnsAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void QuantizeRowAvx512(const QuantizeArgs& args);
void PackQuadsAvx512(const int8_t* lines, int64_t stride, int64_t rows, int8_t* tile);
int64_t PlanRowBlocksAvx512(int64_t code_rows, int64_t* sizes);
void AttentionAvx512(const AttentionArgs& args);
void AttentionFusedAvx512(const AttentionArgs& args);  // the same without vdpbf16ps, where that is slow
void StoreKvAvx512(const StoreKvArgs& args);
extern const PeakEntries kPeakAvx512;

// The kernels of amx over tiles in software, their vector code as amx has it. Quads for any number of rows.
void PackedMatmulAmxTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAmxQuadsTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void AttentionAmxTwinAvx512(const AttentionArgs& args);

}  // namespace hydrant::kernels
