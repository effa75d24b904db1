// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/exp_inl.h"
#include "kernels/attention_lanes_avx512.h"
#include "kernels/attention_pairs_fused_avx512.h"
#include "kernels/attention_weigh_inl.h"
#include "kernels/attention_tiles_inl.h"
#include "kernels/attention_inl.h"
// clang-format on

}  // namespace

void AttentionFusedAvx512(const AttentionArgs& args) {
  if (args.kv.type != FloatType::kBF16) return AttentionAvx512(args);
  Attend<FloatType::kBF16>(args);
}

}  // namespace hydrant::kernels
