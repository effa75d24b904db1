// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/lanes_portable.h"
#include "kernels/exp_inl.h"
#include "kernels/attention_lanes_portable.h"
#include "kernels/attention_weigh_inl.h"
#include "kernels/attention_tiles_inl.h"
#include "kernels/attention_inl.h"
#include "kernels/attention_store_inl.h"
// clang-format on

}  // namespace

void AttentionPortable(const AttentionArgs& args) { AttentionKernel(args); }
void StoreKvPortable(const StoreKvArgs& args) { StoreKvKernel<RowByRow>(args); }

}  // namespace hydrant::kernels
