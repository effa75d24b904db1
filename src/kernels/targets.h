// SPDX-License-Identifier: Apache-2.0
// Entry points of the target files. Those files keep everything else in unnamed namespaces and use no standard
// templates, so that the linker can never pick a copy with instructions that the machine lacks
// (scripts/check_weak_symbols). Dispatch calls nothing of them: what it copies is data, constinit, since a function
// that only fills a struct is compiled with those instructions too.
#pragma once

#include "kernels/arguments.h"
#include "kernels/attention_arguments.h"
#include "kernels/peak.h"

namespace hydrant::kernels {

struct KernelTable;

void MatmulPortable(const MatmulArgs& args, int64_t output_begin, int64_t output_end);
void MatmulAvx2(const MatmulArgs& args, int64_t output_begin, int64_t output_end);
void MatmulAvx512(const MatmulArgs& args, int64_t output_begin, int64_t output_end);

void PackLanesAvx2(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed);
void PackLanesAvx512(const float* x, int64_t stride, int64_t rows, int64_t inputs, float* packed);

void PackedMatmulPortable(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAvx2(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulInTurnsAvx2(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAvxVnni(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulInTurnsAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAmx(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
// Quads by tiles where rows are enough, else as PackedMatmulInTurnsAvx512.
void PackedMatmulAmxQuads(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
// The AMX kernel over tiles in software: all in plain C++, or with its vector code in AVX-512.
void PackedMatmulAmxTwin(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAmxTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
// Likewise of quads, for any number of rows.
void PackedMatmulAmxQuadsTwin(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);
void PackedMatmulAmxQuadsTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end);

void QuantizeRowPortable(const QuantizeArgs& args);
void QuantizeRowAvx2(const QuantizeArgs& args);
void QuantizeRowAvxVnni(const QuantizeArgs& args);
void QuantizeRowAvx512(const QuantizeArgs& args);

void PackQuadsPortable(const int8_t* lines, int64_t stride, int64_t rows, int8_t* tile);
void PackQuadsAvx512(const int8_t* lines, int64_t stride, int64_t rows, int8_t* tile);

int64_t PlanRowBlocksPortable(int64_t code_rows, int64_t* sizes);
int64_t PlanRowBlocksAvx2(int64_t code_rows, int64_t* sizes);
int64_t PlanRowBlocksAvxVnni(int64_t code_rows, int64_t* sizes);
int64_t PlanRowBlocksAvx512(int64_t code_rows, int64_t* sizes);
int64_t PlanRowBlocksTiles(int64_t code_rows, int64_t* sizes);

void AttentionPortable(const AttentionArgs& args);
void AttentionAvx2(const AttentionArgs& args);
void AttentionAvx512(const AttentionArgs& args);
void AttentionFusedAvx512(const AttentionArgs& args);  // the same without vdpbf16ps, where that is slow
// bf16 by tiles, the other types as AVX-512 or portable does; and the same over tiles in software.
void AttentionAmx(const AttentionArgs& args);
void AttentionAmxQuads(const AttentionArgs& args);  // the same bits, one column by vectors
void AttentionAmxTwin(const AttentionArgs& args);
void AttentionAmxTwinAvx512(const AttentionArgs& args);

void StoreKvPortable(const StoreKvArgs& args);
void StoreKvAvx2(const StoreKvArgs& args);
void StoreKvAvx512(const StoreKvArgs& args);

// Row-wise ops of one target.
struct RowwiseEntries {
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*rope_table)(float position, const float* inv_freq, int64_t half, float* cos, float* sin);
  void (*rope)(float* head, const float* cos, const float* sin, int64_t half);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*residual_silu)(const float* residual, const float* linear, int64_t n, float* out);
  void (*exp_sums)(const float* x, int64_t n, ExpSum* out);
  // out[i] = from[i], widened.
  void (*widen)(const uint8_t* from, FloatType type, int64_t n, float* out);
};
extern const RowwiseEntries kRowwisePortable;
extern const RowwiseEntries kRowwiseAvx2;
extern const RowwiseEntries kRowwiseAvx512;

extern const PeakEntries kPeakPortable;
extern const PeakEntries kPeakAvx2;
extern const PeakLoop kPeakAvxVnni;
extern const PeakEntries kPeakAvx512;
extern const PeakLoop kPeakTiles;  // all else of AMX is AVX-512's

}  // namespace hydrant::kernels
