// SPDX-License-Identifier: Apache-2.0
// Low-bit weights by activation codes with AVX-512 VNNI and VBMI, from quads or octets (packed.h). A panel is one tile
// of 16 outputs by up to 8 code rows, which takes all inputs from one stream.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/octet_tiles_avx512.h"
#include "kernels/packed_epilogue_avx512.h"
#include "kernels/quad_tiles_avx512.h"

constexpr int64_t kMaxBlockRows = 8;

// sums: [rows of the block][16].
using TileFunction = void (*)(const PackedMatmulArgs& args, const uint8_t* panel, const int8_t* codes, int32_t* sums);

template <bool kOctets, bool kFetch>
TileFunction FunctionFor(int64_t rows) {
  switch (rows) {
    case 1: return kOctets ? SumOctets<1, kFetch> : SumQuads<1, kFetch>;
    case 2: return kOctets ? SumOctets<2, kFetch> : SumQuads<2, kFetch>;
    case 3: return kOctets ? SumOctets<3, kFetch> : SumQuads<3, kFetch>;
    case 4: return kOctets ? SumOctets<4, kFetch> : SumQuads<4, kFetch>;
    case 5: return kOctets ? SumOctets<5, kFetch> : SumQuads<5, kFetch>;
    case 6: return kOctets ? SumOctets<6, kFetch> : SumQuads<6, kFetch>;
    case 7: return kOctets ? SumOctets<7, kFetch> : SumQuads<7, kFetch>;
    default: return kOctets ? SumOctets<8, kFetch> : SumQuads<8, kFetch>;
  }
}

TileFunction FunctionFor(PackedType type, bool fetch, int64_t rows) {
  if (type == PackedType::kOctets) return fetch ? FunctionFor<true, true>(rows) : FunctionFor<true, false>(rows);
  return fetch ? FunctionFor<false, true>(rows) : FunctionFor<false, false>(rows);
}

// Matrices of few inputs come from L2 or L3 in order. Quads are fetched best by hardware then (15 MB on two cores, 1 row:
// .31 of the multiply peak, with prefetches of ours .21; 4 rows .84, .66), octets are not (.18, .28; 8 rows .66, .76).
constexpr int64_t kFewSteps = 6;

bool Fetches(const PackedMatmulArgs& args) { return args.type == PackedType::kOctets || args.steps > kFewSteps; }

// A panel's outputs are a line of each row, far apart: they come while its products are computed.
inline void FetchOutputs(const PackedMatmulArgs& args, int64_t panel) {
  const float* out = args.out + panel * kPanelOutputs;
  for (int64_t r = 0; r < args.code_rows / (args.two_planes ? 2 : 1); ++r, out += args.out_stride) {
    _mm_prefetch(reinterpret_cast<const char*>(out), _MM_HINT_T0);
  }
}

}  // namespace

// The first block of rows fetches a panel from memory, the others find it in L2.
void PackedMatmulAvx512(const PackedMatmulArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(64) int32_t sums[kMaxCodeRows * kPanelOutputs];
  const bool fetches = Fetches(args);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = args.panels + p * args.panel_bytes;
    FetchOutputs(args, p);
    for (int64_t b = 0; b < args.num_blocks; ++b) {
      const RowBlock& block = args.blocks[b];
      const TileFunction function = FunctionFor(args.type, b == 0 && fetches, block.rows);
      function(args, panel, block.codes, sums + block.first * kPanelOutputs);
    }
    FinishPanel<1>(args, p, sums);
  }
}

int64_t PlanRowBlocksAvx512(int64_t code_rows, int64_t* sizes) {
  if (code_rows <= 0) return 0;
  const int64_t blocks = (code_rows + kMaxBlockRows - 1) / kMaxBlockRows;
  for (int64_t b = 0; b < blocks; ++b) sizes[b] = code_rows / blocks + (b < code_rows % blocks ? 1 : 0);
  return blocks;
}

}  // namespace hydrant::kernels
