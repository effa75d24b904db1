// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

#include "kernels/rowwise_inl.h"

}  // namespace

RowwiseEntries RowwisePortable() {
  return {AttentionKernel, RmsNormKernel, RopeTableKernel, RopeKernel, SiluMulKernel, ResidualSiluKernel};
}

}  // namespace hydrant::kernels
