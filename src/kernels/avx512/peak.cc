// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/avx512/entries.h"

namespace hydrant::kernels {
namespace {

#include "kernels/avx512/peak_inl.h"

constexpr PeakLoop kLoops[] = {{PeakType::kF32, "vfmadd zmm", Multiply<F32>},
                               {PeakType::kBF16, "vdpbf16ps", Multiply<BF16>},
                               {PeakType::kInt8, "vpdpbusd", Multiply<Int8>}};

}  // namespace

constinit const PeakEntries kPeakAvx512 = {ReadLines, kLoops, sizeof(kLoops) / sizeof(kLoops[0])};

}  // namespace hydrant::kernels
