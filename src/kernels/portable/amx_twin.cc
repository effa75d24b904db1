// SPDX-License-Identifier: Apache-2.0
// The AMX kernels with everything in plain C++, for every machine.
#include <cstdint>
#include <utility>

#include "kernels/amx/tiles_software.h"
#include "kernels/packed.h"
#include "kernels/portable/entries.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/portable/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/portable/attention_lanes.h"
#include "kernels/generic/attention_weigh_inl.h"
#include "kernels/amx/attention_products_inl.h"
#include "kernels/amx/attention_inl.h"
// clang-format on

#include "kernels/amx/matmul_packed_stream_inl.h"
#include "kernels/amx/matmul_packed_sums_inl.h"

#include "kernels/amx/matmul_packed_inl.h"
#include "kernels/amx/matmul_packed_quads_inl.h"
#include "kernels/amx/matmul_packed_vectors_plain.h"

}  // namespace

void AttentionAmxTwin(const AttentionArgs& args) {
  if (args.kv.type != FloatType::kBF16) return AttentionPortable(args);
  TileAttention<SoftwareTiles>(args).Run();
}

void PackedMatmulAmxTwin(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TilePackedMatmul<SoftwareTiles, PlainVectors>(args, panel_begin, panel_end);
}

void PackedMatmulAmxQuadsTwin(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TileQuadMatmul<SoftwareTiles, PlainVectors>(args, panel_begin, panel_end);
}

// Blocks of 16 code rows, the columns of a tile.
int64_t PlanRowBlocksTiles(int64_t code_rows, int64_t* sizes) {
  int64_t blocks = 0;
  for (int64_t first = 0; first < code_rows; first += kTileRows) {
    sizes[blocks++] = code_rows - first < kTileRows ? code_rows - first : kTileRows;
  }
  return blocks;
}

}  // namespace hydrant::kernels
