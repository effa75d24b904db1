// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/amx_tiles_instructions.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/exp_inl.h"
#include "kernels/attention_lanes_avx512.h"
#include "kernels/attention_pairs_avx512.h"
#include "kernels/attention_weigh_inl.h"
#include "kernels/attention_amx_products_inl.h"
#include "kernels/attention_amx_inl.h"
// clang-format on

}  // namespace

void AttentionAmx(const AttentionArgs& args) {
  if (args.kv.type != FloatType::kBF16) return AttentionAvx512(args);
  TileAttention<TileInstructions>(args).Run();
}

}  // namespace hydrant::kernels
