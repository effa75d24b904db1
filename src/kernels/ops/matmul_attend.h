// SPDX-License-Identifier: Apache-2.0
// One thread multiplies, rotates, stores and attends to queries, keys and values of a few heads, and then of the next
// few. So these stay in its second-level cache. Between whole products and attention they would go to memory and back,
// or to another core.
#pragma once

#include "kernels/ops/attention_ops.h"
#include "kernels/ops/matmul.h"

namespace hydrant::kernels {

// Three weights that read one input. `out` and `mode` of these jobs are not used by MatmulAttend.
struct QkvJobs {
  MatmulJob q, k, v;  // [H * Dh, D], [Hk * Dh, D] twice
};

// Matmul of the three, before RotateStoreAttend. Each thread makes the heads to which it will attend, or nearly those
// where threads do not share heads evenly. Where the kernel leaves time for it, the keys and values of these heads come
// to the thread's second-level cache meanwhile.
void MatmulQkv(Queue& queue, const MatmulInput& input, const QkvJobs& jobs, const AttentionPlan& plan,
               const KvLayer& kv);

// Whether MatmulAttend takes these jobs and is faster. It takes low-bit weights and heads of whole panels. It is faster
// by tiles where there are enough heads for all threads, and otherwise with few inputs and equally many heads for each
// thread.
bool CanMatmulAttend(const Queue& queue, const QkvJobs& jobs, const KvLayer& kv);

// Matmul of the three and RotateStoreAttend of all rows of the plan, with the same bits. out [R, H * Dh].
void MatmulAttend(Queue& queue, const MatmulInput& input, const QkvJobs& jobs, const HeadRotation& rotation,
                  const AttentionPlan& plan, const KvLayer& kv, Rows out);

}  // namespace hydrant::kernels
