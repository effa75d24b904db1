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
#include "kernels/attention_pairs_avx512.h"
#include "kernels/attention_weigh_inl.h"
#include "kernels/attention_tiles_inl.h"
#include "kernels/attention_inl.h"
#include "kernels/attention_store_inl.h"
#include "kernels/transpose_avx512.h"
#include "kernels/attention_store_avx512.h"
// clang-format on

}  // namespace

void AttentionAvx512(const AttentionArgs& args) { AttentionKernel(args); }
void StoreKvAvx512(const StoreKvArgs& args) { StoreKvKernel<SixteenRows>(args); }

}  // namespace hydrant::kernels
