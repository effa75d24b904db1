// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/avx2/entries.h"
#include "kernels/packed.h"

namespace hydrant::kernels {
namespace {

#include "kernels/avx2/quantize_inl.h"

inline Sums AddLine(Sums sums, const Line& line) { return AddCodes(sums, line.half[0], line.half[1]); }
inline uint32_t Excess(Sums sums) { return 128U * Total(sums); }
// Stores lines, or quads, as all targets but avx2 can.
inline void StoreLine(const QuantizeArgs& args, int8_t* to, const Line& line) {
  if (args.quad_stride == 4) return StoreHalves(to, line.half[0], line.half[1]);
  alignas(32) int32_t quads[16];
  StoreHalves(reinterpret_cast<int8_t*>(quads), line.half[0], line.half[1]);
  for (int64_t q = 0; q < 16; ++q) __builtin_memcpy(to + q * args.quad_stride, quads + q, 4);
}

#include "kernels/generic/quantize_inl.h"

}  // namespace

void QuantizeRowAvxVnni(const QuantizeArgs& args) { QuantizeRow(args); }

}  // namespace hydrant::kernels
