// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/amx/entries.h"
#include "kernels/amx/tiles_instructions.h"
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
#include "kernels/amx/attention_products_inl.h"
#include "kernels/amx/attention_inl.h"
#include "kernels/amx/attention_one_column.h"
// clang-format on

// Not inlined, so that no compiler moves it past what reads and writes MXCSR.
[[gnu::noinline]] void AttendOneColumn(const AttentionArgs& args) { OneColumnAttention(args).Run(); }

// Returns false where tiles may have flushed a number that vectors keep: an operand or an inexact result was denormal.
// (An exact denormal result sets no flag, but it is an operand of whatever comes after it.)
bool TryOneColumn(const AttentionArgs& args) {
  constexpr unsigned kFlags = 0x3f, kDenormalOperand = 0x02, kUnderflow = 0x10;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before & ~kFlags);
  AttendOneColumn(args);
  const unsigned flags = _mm_getcsr();
  _mm_setcsr(before);
  return (flags & (kDenormalOperand | kUnderflow)) == 0;
}

}  // namespace

void AttentionAmx(const AttentionArgs& args) {
  if (args.kv.type != FloatType::kBF16) return AttentionAvx512(args);
  TileAttention<TileInstructions>(args).Run();
}

void AttentionAmxQuads(const AttentionArgs& args) {
  if (args.kv.type == FloatType::kBF16 && OneColumnAttention::Takes(args) && TryOneColumn(args)) return;
  AttentionAmx(args);
}

}  // namespace hydrant::kernels
