// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul_attend.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

// Outputs that are multiplied before they are attended to: they take less than half of the second-level cache. (Intel
// with AMX, 7B w4a8, 200, 400, 800 KB over all at once, five runs in turn: 64 rows .97 .98 .98, a prompt by 128 rows
// 1.03 1.02 1.00.)
constexpr int64_t kPartBytes = 800 * 1024;

int64_t PanelsOf(int64_t heads, const KvLayer& kv) { return heads * kv.head_dim / kPanelOutputs; }

// A thread's part of the queries, keys and values; kept for the next call.
struct Part {
  Matrix q, k, v;
};

}  // namespace

bool CanMatmulAttend(const Queue& queue, const QkvJobs& jobs, const KvLayer& kv) {
  const Weight &q = *jobs.q.weight, &k = *jobs.k.weight, &v = *jobs.v.weight;
  const bool alike = q.kind == k.kind && q.kind == v.kind && q.kind != InputKind::kF32;
  return alike && queue.table->quad_codes && kv.head_dim % kPanelOutputs == 0 &&
         PanelsOf(kv.num_kv_heads, kv) >= 16 * queue.pool->num_threads() &&
         kv.num_kv_heads >= 2 * queue.pool->num_threads();
}

void MatmulAttend(Queue& queue, const MatmulInput& input, const QkvJobs& jobs, const HeadRotation& rotation,
                  const AttentionPlan& plan, const KvLayer& kv, Rows out) {
  const int64_t group = plan.group(), rows = input.rows(), dim = kv.head_dim;
  const Weight &q = *jobs.q.weight, &k = *jobs.k.weight, &v = *jobs.v.weight;
  HYDRANT_CHECK(dim % kPanelOutputs == 0 && q.outputs == plan.options.num_heads * dim);
  HYDRANT_CHECK(k.outputs == kv.num_kv_heads * dim && v.outputs == k.outputs);
  const int64_t floats = rows * (group + 2) * dim;  // of one kv head
  const int64_t together = std::max<int64_t>(1, kPartBytes / (floats * int64_t{sizeof(float)}));
  ForItemsShared(queue, kv.num_kv_heads, floats * input.inputs() / 4, [&](int64_t begin, int64_t end) {
    static thread_local Part part;
    for (int64_t head = begin; head < end; head += together) {
      const int64_t count = std::min(together, end - head), first = PanelsOf(head, kv),
                    last = PanelsOf(head + count, kv);
      part.q.Resize(rows, group * count * dim);
      for (Matrix* narrow : {&part.k, &part.v}) narrow->Resize(rows, count * dim);
      input.Panels(jobs.q, group * first, group * last, part.q, NextPanels(q, k, first));
      input.Panels(jobs.k, first, last, part.k, NextPanels(k, v, first));
      input.Panels(jobs.v, first, last, part.v, NextPanels(v, q, group * last));
      AttendHeads(*queue.table, {head, part.q, part.k, part.v}, rotation, plan, kv, out);
    }
  });
}

}  // namespace hydrant::kernels
