// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx2/entries.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/avx2/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/avx2/attention_lanes.h"
#include "kernels/generic/attention_weigh_inl.h"
#include "kernels/generic/attention_tiles_inl.h"
#include "kernels/generic/attention_inl.h"
#include "kernels/generic/attention_store_inl.h"
// clang-format on

}  // namespace

void AttentionAvx2(const AttentionArgs& args) { AttentionKernel(args); }
void StoreKvAvx2(const StoreKvArgs& args) { StoreKvKernel<RowByRow>(args); }

}  // namespace hydrant::kernels
