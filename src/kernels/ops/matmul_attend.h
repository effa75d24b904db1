// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values multiplied, rotated, stored and attended to by one thread, a few heads after the other, so
// that they stay in its second-level cache: between whole products and attention they would go to memory and back, or
// to another core.
#pragma once

#include "kernels/ops/attention_ops.h"
#include "kernels/ops/matmul.h"

namespace hydrant::kernels {

// Weights that read one input; `out` and `mode` of these jobs are not looked at.
struct QkvJobs {
  MatmulJob q, k, v;  // [H * Dh, D], [Hk * Dh, D] twice
};

// Matmul of the three before RotateStoreAttend: each thread makes the heads that it will attend to (where threads do
// not share heads evenly, nearly those), and where the kernel leaves time for it, their keys and values come to its
// second-level cache meanwhile.
void MatmulQkv(Queue& queue, const MatmulInput& input, const QkvJobs& jobs, const AttentionPlan& plan,
               const KvLayer& kv);

// Whether MatmulAttend takes these, and pays: low-bit weights and heads of whole panels; where tiles multiply, enough
// of them for all threads; elsewhere few inputs, and as many heads for each thread.
bool CanMatmulAttend(const Queue& queue, const QkvJobs& jobs, const KvLayer& kv);

// Matmul of the three and RotateStoreAttend of all rows of the plan, with the same bits. out [R, H * Dh].
void MatmulAttend(Queue& queue, const MatmulInput& input, const QkvJobs& jobs, const HeadRotation& rotation,
                  const AttentionPlan& plan, const KvLayer& kv, Rows out);

}  // namespace hydrant::kernels
