// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "kernels/amx_tiles_instructions.h"
#include "kernels/targets.h"

namespace hydrant::kernels {
namespace {

// The order matters.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/exp_inl.h"
#include "kernels/attention_lanes_avx512.h"
#include "kernels/attention_pairs_avx512.h"
#include "kernels/attention_weigh_inl.h"
#include "kernels/attention_amx_products_inl.h"
#include "kernels/attention_amx_inl.h"
#include "kernels/attention_one_column_avx512.h"
// clang-format on

// Not inlined, so that no compiler moves it past what reads and writes MXCSR.
[[gnu::noinline]] void AttendOneColumn(const AttentionArgs& args) { OneColumnAttention(args).Run(); }

// False where tiles may flush what vectors keep: a denormal number was an operand, or an inexact result; an exact one
// is an operand of whatever comes after it.
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
