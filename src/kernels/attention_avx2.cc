// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/lanes_avx2.h"
#include "kernels/exp_inl.h"
#include "kernels/attention_lanes_avx2.h"
#include "kernels/attention_weigh_inl.h"
#include "kernels/attention_tiles_inl.h"
#include "kernels/attention_inl.h"
#include "kernels/attention_store_inl.h"
// clang-format on

}  // namespace

void AttentionAvx2(const AttentionArgs& args) { AttentionKernel(args); }
void StoreKvAvx2(const StoreKvArgs& args) { StoreKvKernel<RowByRow>(args); }

}  // namespace hydrant::kernels
