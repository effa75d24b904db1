// SPDX-License-Identifier: Apache-2.0
// matmul_packed_amx.cc with tiles in software: the rest of the AMX kernel, vector code included, where there is AVX-512
// but no AMX.
#include <immintrin.h>

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
#include "kernels/packed_epilogue_avx512.h"
#include "kernels/transpose_avx512.h"

#include "kernels/matmul_packed_amx_quads_inl.h"
#include "kernels/matmul_packed_amx_vectors_avx512.h"

}  // namespace

void PackedMatmulAmxTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TilePackedMatmul<SoftwareTiles, Avx512Vectors>(args, panel_begin, panel_end);
}

void PackedMatmulAmxQuadsTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TileQuadMatmul<SoftwareTiles, Avx512Vectors>(args, panel_begin, panel_end);
}

}  // namespace hydrant::kernels
