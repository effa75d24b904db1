// SPDX-License-Identifier: Apache-2.0
// The AMX kernel with everything in plain C++, for every machine.
#include <cstdint>
#include <utility>

#include "kernels/amx_tiles_software.h"
#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/matmul_packed_amx_stream_inl.h"
#include "kernels/matmul_packed_amx_sums_inl.h"

#include "kernels/matmul_packed_amx_inl.h"
#include "kernels/matmul_packed_amx_quads_inl.h"
#include "kernels/matmul_packed_amx_vectors_plain.h"

}  // namespace

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
