// SPDX-License-Identifier: Apache-2.0
// The tables of avx2 and avx-vnni, with the row-wise kernels and the noise.
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx2/entries.h"
#include "kernels/generic/noise_inl.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/avx2/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/generic/rowwise_inl.h"
// clang-format on

constexpr KernelTable Avx2Table(bool reads_in_turns) {
  KernelTable table{};
  table.name = table.target = "avx2";
  table.matmul = MatmulAvx2;
  table.row_lanes = 8;
  table.min_row_lanes = 3;
  table.pack_lanes = PackLanesAvx2;
  table.packed_matmul = reads_in_turns ? PackedMatmulInTurnsAvx2 : PackedMatmulAvx2;
  table.reads_lines = true;
  table.quantize_row = QuantizeRowAvx2;
  table.plan_row_blocks = PlanRowBlocksAvx2;
  table.sign_codes = true;
  table.attention = AttentionAvx2;
  table.store_kv = StoreKvAvx2;
  table.peak = &kPeakAvx2;
  return WithRowwise(table);
}

// Processors that have AVX-VNNI and no AVX-512 are Intel's: PackedMatmulAvxVnni always reads in turns.
constexpr KernelTable AvxVnniTable() {
  KernelTable table = Avx2Table(true);
  table.name = table.target = "avx-vnni";
  table.packed_matmul = PackedMatmulAvxVnni;
  table.quantize_row = QuantizeRowAvxVnni;
  table.plan_row_blocks = PlanRowBlocksAvxVnni;
  table.sign_codes = false;
  table.peak = &kPeakAvxVnni;
  return table;
}

}  // namespace

constinit const KernelTable kAvx2[2] = {Avx2Table(false), Avx2Table(true)};
constinit const KernelTable kAvxVnni = AvxVnniTable();

}  // namespace hydrant::kernels
