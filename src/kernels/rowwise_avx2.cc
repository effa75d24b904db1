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
#include "kernels/rowwise_inl.h"
// clang-format on

}  // namespace

constinit const RowwiseEntries kRowwiseAvx2 = {RmsNormKernel,      RopeTableKernel, RopeKernel, SiluMulKernel,
                                               ResidualSiluKernel, ExpSumsKernel,   WidenKernel};

}  // namespace hydrant::kernels
