// SPDX-License-Identifier: Apache-2.0
// What the files of this folder define for its tables (table.cc). AVX-VNNI is AVX2 but for low-bit products.
#pragma once

#include "kernels/kernel_table.h"

namespace hydrant::kernels {

void MatmulAvx2(const MatmulArgs& args, int64_t output_begin, int64_t output_end);
void PackLanesAvx2(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed);
void PackedMatmulAvx2(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulInTurnsAvx2(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void QuantizeRowAvx2(const QuantizeArgs& args);
int64_t PlanRowBlocksAvx2(int64_t code_rows, int64_t* sizes);
void AttentionAvx2(const AttentionArgs& args);
void StoreKvAvx2(const StoreKvArgs& args);
extern const PeakEntries kPeakAvx2;

void PackedMatmulAvxVnni(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void QuantizeRowAvxVnni(const QuantizeArgs& args);
int64_t PlanRowBlocksAvxVnni(int64_t code_rows, int64_t* sizes);
extern const PeakEntries kPeakAvxVnni;

}  // namespace hydrant::kernels
