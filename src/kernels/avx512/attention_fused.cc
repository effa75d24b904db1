// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx512/entries.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/avx512/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/avx512/attention_lanes.h"
#include "kernels/avx512/attention_pairs_fused.h"
#include "kernels/generic/attention_weigh_inl.h"
#include "kernels/generic/attention_tiles_inl.h"
#include "kernels/generic/attention_inl.h"
// clang-format on

}  // namespace

void AttentionFusedAvx512(const AttentionArgs& args) {
  if (args.kv.type != FloatType::kBF16) return AttentionAvx512(args);
  Attend<FloatType::kBF16>(args);
}

}  // namespace hydrant::kernels
