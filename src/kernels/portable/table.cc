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
  return WithRowwise(table);
}

#include "kernels/amx/table_inl.h"

constexpr KernelTable AmxTwinTable() {
  KernelTable table = WithTiles(PortableTable());
  table.name = table.target = "amx-twin";
  table.packed_matmul = PackedMatmulAmxTwin;
  table.pack_quads = PackQuadsPortable;
  table.attention = AttentionAmxTwin;
  return table;
}

}  // namespace

constinit const KernelTable kPortable = PortableTable();
constinit const KernelTable kAmxTwin = AmxTwinTable();

}  // namespace hydrant::kernels
