// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/small_work.h"

namespace hydrant::kernels {

bool AreInputsAlone(int64_t rows, int64_t hidden_size) {
  // Largest number of floats of the rows [R, D] for which every thread makes the products' inputs of all rows by
  // itself. Larger ones are shared out among the threads. A single row is never shared out, also not with its inner
  // width F: the other threads would only wait. Milliseconds of a pass, shared out -> each thread by itself (embedded
  // model, D = 256, w8a8, AMD Zen 4, two threads):
  //   rows   cores that share a cache   cores that do not
  //   1      0.152 -> 0.150             0.210 -> 0.192
  //   3      0.203 -> 0.205             0.327 -> 0.313
  //   4      0.236 -> 0.240             0.389 -> 0.384
  //   5      0.287 -> 0.289             0.490 -> 0.467
  //   6      0.336 -> 0.340             0.548 -> 0.536
  // Two rows of the inner width (F = 704) are shared out: SiLU by each thread took 0.164 -> 0.169 and 0.257 -> 0.263
  // ms.
  constexpr int64_t kFloatsAlone = 1536;
  return rows == 1 || rows * hidden_size <= kFloatsAlone;
}

bool IsSquareAlone(bool floats, int64_t rows, int64_t hidden_size) {
  // Most multiplications of a low-bit block that every thread does whole, by itself: two rows of the embedded model's
  // 256 x 256. Floats are always shared out. Milliseconds of a level (embedded model, AMD Zen 4, two threads that share
  // a cache):
  //   weights, rows   each thread by itself   shared out
  //   w8a8, 4 rows    0.016                   0.014
  //   bf16, 4 rows    0.071                   0.059
  //   bf16, 1 row     0.034                   0.029
  constexpr int64_t kMostAlone = int64_t{1} << 17;
  return !floats && rows * hidden_size * hidden_size <= kMostAlone;
}

bool IsInnerWhole(int64_t rows, int64_t inner) {
  // Largest number of floats of gate and up together for which both products are made whole and only then go through
  // SiLU. Up to this size they stay in the caches in between, and a few long calls are faster. Larger products are made
  // part by part (MatmulSiluMul). Time of whole products over that of part by part:
  //   embedded model, `avx512` on Intel, 5, 9, 17 rows   1.3 to 2.2 % less
  //   7B, `amx`, 4 rows (88,064 floats)                  0.5 % more
  //   7B, `amx`, 64 rows                                 4 % more
  constexpr int64_t kCachedInner = 32 * 1024;
  return 2 * rows * inner <= kCachedInner;
}

}  // namespace hydrant::kernels
