// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/portable/entries.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/portable/lanes.h"
#include "kernels/generic/exp_inl.h"
#include "kernels/portable/attention_lanes.h"
#include "kernels/generic/attention_weigh_inl.h"
#include "kernels/generic/attention_tiles_inl.h"
#include "kernels/generic/attention_inl.h"
#include "kernels/generic/attention_store_inl.h"
// clang-format on

}  // namespace

void AttentionPortable(const AttentionArgs& args) { AttentionKernel(args); }
void StoreKvPortable(const StoreKvArgs& args) { StoreKvKernel<RowByRow>(args); }

}  // namespace hydrant::kernels
