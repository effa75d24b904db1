// SPDX-License-Identifier: Apache-2.0
// attention_amx.cc with everything in plain C++, for every machine.
#include <cstdint>

#include "kernels/amx_tiles_software.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/lanes_portable.h"
#include "kernels/exp_inl.h"
#include "kernels/attention_lanes_portable.h"
#include "kernels/attention_weigh_inl.h"
#include "kernels/attention_amx_products_inl.h"
#include "kernels/attention_amx_inl.h"
// clang-format on

}  // namespace

void AttentionAmxTwin(const AttentionArgs& args) {
  if (args.kv.type != FloatType::kBF16) return AttentionPortable(args);
  TileAttention<SoftwareTiles>(args).Run();
}

}  // namespace hydrant::kernels
