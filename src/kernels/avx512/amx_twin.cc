// SPDX-License-Identifier: Apache-2.0
// The AMX kernels with tiles in software and the vector code that amx has, for machines with AVX-512 but without AMX.
#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/amx/tiles_software.h"
#include "kernels/avx512/entries.h"
#include "kernels/packed.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/avx512/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/avx512/attention_lanes.h"
#include "kernels/avx512/attention_pairs.h"
#include "kernels/generic/attention_weigh_inl.h"
#include "kernels/amx/attention_products_inl.h"
#include "kernels/amx/attention_inl.h"
// clang-format on

#include "kernels/amx/matmul_packed_stream_inl.h"
#include "kernels/amx/matmul_packed_sums_inl.h"

#include "kernels/amx/matmul_packed_inl.h"
#include "kernels/avx512/packed_epilogue.h"
#include "kernels/avx512/transpose.h"

#include "kernels/amx/matmul_packed_quads_inl.h"
#include "kernels/amx/matmul_packed_vectors_avx512.h"

}  // namespace

void AttentionAmxTwinAvx512(const AttentionArgs& args) {
  if (args.kv.type != FloatType::kBF16) return AttentionAvx512(args);
  TileAttention<SoftwareTiles>(args).Run();
}

void PackedMatmulAmxTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TilePackedMatmul<SoftwareTiles, Avx512Vectors>(args, panel_begin, panel_end);
}

void PackedMatmulAmxQuadsTwinAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  TileQuadMatmul<SoftwareTiles, Avx512Vectors>(args, panel_begin, panel_end);
}

}  // namespace hydrant::kernels
