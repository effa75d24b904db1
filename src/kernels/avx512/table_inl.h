// SPDX-License-Identifier: Apache-2.0
// The table of avx512 with the row-wise kernels and the noise, which amx has too. Included inside an unnamed namespace.

// The order matters.
// clang-format off
#include "kernels/avx512/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/generic/rowwise_inl.h"
// clang-format on

constexpr KernelTable Avx512Table(bool reads_in_turns, bool slow_bf16_dots) {
  KernelTable table{};
  table.name = table.target = "avx512";
  table.matmul = MatmulAvx512;
  table.row_lanes = 16;
  table.min_row_lanes = 9;
  table.pack_lanes = PackLanesAvx512;
  table.packed_matmul = reads_in_turns ? PackedMatmulInTurnsAvx512 : PackedMatmulAvx512;
  table.quantize_row = QuantizeRowAvx512;
  table.plan_row_blocks = PlanRowBlocksAvx512;
  table.reads_interleaved = true;
  table.fetches_lists = !reads_in_turns;
  table.attention = slow_bf16_dots ? AttentionFusedAvx512 : AttentionAvx512;
  table.store_kv = StoreKvAvx512;
  table.peak = &kPeakAvx512;
  return WithRowwise(table);
}
