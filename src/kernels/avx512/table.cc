// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx512/entries.h"
#include "kernels/generic/noise_inl.h"
#include "kernels/portable/entries.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/amx/table_inl.h"
#include "kernels/avx512/table_inl.h"

constexpr KernelTable AmxTwinTable() {
  KernelTable table = WithTiles(Avx512Table(true, true));
  table.name = table.target = "amx-twin";
  table.packed_matmul = PackedMatmulAmxTwinAvx512;
  table.pack_quads = PackQuadsAvx512;
  table.attention = AttentionAmxTwinAvx512;
  return table;
}

}  // namespace

constinit const KernelTable kAvx512[2][2] = {{Avx512Table(false, false), Avx512Table(false, true)},
                                             {Avx512Table(true, false), Avx512Table(true, true)}};
constinit const KernelTable kAmxTwinAvx512 = AmxTwinTable();

}  // namespace hydrant::kernels
