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

#include "kernels/matmul_packed_amx_vectors_avx512.h"

}  // namespace

void PackedMatmulAmx(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TilePackedMatmul<TileInstructions, Avx512Vectors>(args, panel_begin, panel_end);
}

}  // namespace hydrant::kernels
