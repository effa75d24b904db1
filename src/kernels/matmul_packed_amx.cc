// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/amx_tiles_instructions.h"
#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/matmul_packed_amx_stream_inl.h"
#include "kernels/matmul_packed_amx_sums_inl.h"

#include "kernels/matmul_packed_amx_inl.h"
#include "kernels/packed_epilogue_avx512.h"
#include "kernels/transpose_avx512.h"

#include "kernels/matmul_packed_amx_quads_inl.h"
#include "kernels/matmul_packed_amx_vectors_avx512.h"

// Fewer rows of the embedded model are faster by vectors, which read weights sooner. (w8a8, two cores, 3 4 5 6 rows, a
// pass by tiles over one by vectors: 1.03 1.03 .98 .97.)
constexpr int64_t kFewestTileRows = 5;

}  // namespace

void PackedMatmulAmx(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TilePackedMatmul<TileInstructions, Avx512Vectors>(args, panel_begin, panel_end);
}

void PackedMatmulAmxQuads(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.type != PackedType::kQuads || args.code_rows < kFewestTileRows) {
    return PackedMatmulInTurnsAvx512(args, panel_begin, panel_end);
  }
  TileQuadMatmul<TileInstructions, Avx512Vectors>(args, panel_begin, panel_end);
}

}  // namespace hydrant::kernels
