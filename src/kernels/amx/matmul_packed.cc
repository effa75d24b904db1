// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/amx/entries.h"
#include "kernels/amx/tiles_instructions.h"
#include "kernels/avx512/entries.h"
#include "kernels/packed.h"

namespace hydrant::kernels {
namespace {

#include "kernels/amx/matmul_packed_stream_inl.h"
#include "kernels/amx/matmul_packed_sums_inl.h"

#include "kernels/amx/matmul_packed_inl.h"
#include "kernels/avx512/packed_epilogue.h"
#include "kernels/avx512/transpose.h"

#include "kernels/amx/matmul_packed_quads_inl.h"
#include "kernels/amx/matmul_packed_vectors_avx512.h"

// With fewer rows the embedded model is faster by vectors, which read weights sooner. Time of a pass by tiles over one
// by vectors (w8a8, two cores): 1.03 with 3 and 4 rows, 0.98 with 5, 0.97 with 6.
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
