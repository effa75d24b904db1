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
#include "kernels/avx512/attention_pairs.h"
#include "kernels/generic/attention_weigh_inl.h"
#include "kernels/generic/attention_tiles_inl.h"
#include "kernels/generic/attention_inl.h"
#include "kernels/generic/attention_store_inl.h"
#include "kernels/avx512/transpose.h"
#include "kernels/avx512/attention_store.h"
// clang-format on

}  // namespace

void AttentionAvx512(const AttentionArgs& args) { AttentionKernel(args); }
void StoreKvAvx512(const StoreKvArgs& args) { StoreKvKernel<SixteenRows>(args); }

}  // namespace hydrant::kernels
