// SPDX-License-Identifier: Apache-2.0
// What the files of this folder define for its tables (table.cc) and for tests.
#pragma once

#include "kernels/kernel_table.h"

namespace hydrant::kernels {

void MatmulPortable(const MatmulArgs& args, int64_t output_begin, int64_t output_end);
void PackedMatmulPortable(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void QuantizeRowPortable(const QuantizeArgs& args);
void PackQuadsPortable(const int8_t* lines, int64_t stride, int64_t rows, int8_t* tile);
int64_t PlanRowBlocksPortable(int64_t code_rows, int64_t* sizes);
void AttentionPortable(const AttentionArgs& args);
void StoreKvPortable(const StoreKvArgs& args);
extern const PeakEntries kPeakPortable;

// The kernels of amx over tiles in software. Quads for any number of rows.
void PackedMatmulAmxTwin(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAmxQuadsTwin(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
int64_t PlanRowBlocksTiles(int64_t code_rows, int64_t* sizes);
void AttentionAmxTwin(const AttentionArgs& args);

}  // namespace hydrant::kernels
