// SPDX-License-Identifier: Apache-2.0
// The tables of portable and of amx-twin, with the row-wise kernels and the noise.
#include <cstdint>

#include "kernels/generic/noise_inl.h"
#include "kernels/portable/entries.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/portable/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/generic/rowwise_inl.h"
// clang-format on

constexpr KernelTable PortableTable() {
  KernelTable table{};
  table.name = table.target = "portable";
  table.matmul = MatmulPortable;
  table.packed_matmul = PackedMatmulPortable;
  table.reads_lines = table.reads_interleaved = true;
  table.quantize_row = QuantizeRowPortable;
  table.plan_row_blocks = PlanRowBlocksPortable;
  table.attention = AttentionPortable;
  table.store_kv = StoreKvPortable;
  table.peak = &kPeakPortable;
  table.rms_norm = RmsNormKernel;
  table.rope_table = RopeTableKernel;
  table.rope = RopeKernel;
  table.silu_mul = SiluMulKernel;
  table.residual_silu = ResidualSiluKernel;
  table.exp_sums = ExpSumsKernel;
  table.widen = WidenKernel;
  table.gumbel_row = GumbelRowInline;
  return table;
}

constexpr KernelTable AmxTwinTable() {
  KernelTable table = PortableTable();
  table.name = table.target = "amx-twin";
  table.packed_matmul = PackedMatmulAmxTwin;
  table.reads_interleaved = false;
  table.plan_row_blocks = PlanRowBlocksTiles;
  table.quad_codes = table.multiplies_by_tiles = true;
  table.pack_quads = PackQuadsPortable;
  table.attention = AttentionAmxTwin;
  table.attends_by_tiles = true;
  return table;
}

}  // namespace

constinit const KernelTable kPortable = PortableTable();
constinit const KernelTable kAmxTwin = AmxTwinTable();

}  // namespace hydrant::kernels
