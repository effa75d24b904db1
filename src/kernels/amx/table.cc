// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/amx/entries.h"
#include "kernels/avx512/entries.h"
#include "kernels/generic/noise_inl.h"
#include "kernels/portable/entries.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/amx/table_inl.h"
#include "kernels/avx512/table_inl.h"

// Processors with AMX are Intel's: they read in turns, and their bf16 dot products are slow.
constexpr KernelTable AmxTable() {
  KernelTable table = WithTiles(Avx512Table(true, true));
  table.name = table.target = "amx";
  table.packed_matmul = PackedMatmulAmx;
  table.pack_quads = PackQuadsAvx512;
  table.attention = AttentionAmx;
  table.peak = &kPeakAmx;
  return table;
}

constexpr KernelTable AmxQuadsTable() {
  KernelTable table = Avx512Table(true, true);
  table.name = "amx-quads";
  table.target = "amx";
  table.packed_matmul = PackedMatmulAmxQuads;
  table.attention = AttentionAmxQuads;
  table.attends_by_tiles = true;
  table.peak = &kPeakAmx;
  return table;
}

}  // namespace

constinit const KernelTable kAmx = AmxTable();
constinit const KernelTable kAmxQuads = AmxQuadsTable();

}  // namespace hydrant::kernels
