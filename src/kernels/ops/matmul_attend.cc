// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/matmul_attend.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

// Outputs that are multiplied before they are attended to: they take less than half of the second-level cache. (Intel
// with AMX, 7B w4a8, 200, 400, 800 KB over all at once, five runs in turn: 64 rows .97 .98 .98, a prompt by 128 rows
// 1.03 1.02 1.00.)
constexpr int64_t kPartBytes = 800 * 1024;

// Without tiles: inputs of models that stay in the caches, where a barrier less and results that stay with a thread
// count. (Intel with AMX, two threads, `avx512`, embedded model of 256 inputs in w8a8, four pairs and three, 1 2 3 4 5
// 8 rows .97 .96 .96 .96 .96 .94, 1 5 16 32 64 128 rows and a prompt .96 .95 .93 .94 .95 .96 .96; `avx2` 1 4 8 16 rows
// .97 .95 .96 .96; one thread 1.00 .99 .99 1.00. 1B, 2,048 inputs, in w4a8 .98 .99 .98 .97; 7B, 1 8 16 rows, 1.06 1.02
// .99: weights come from memory as more streams.)
constexpr int64_t kFewInputs = 768;

// Keys and values that wait for attention in the second-level cache, which weights go through meanwhile.
constexpr int64_t kWaitingBytes = 512 * 1024;

int64_t PanelsOf(int64_t heads, const KvLayer& kv) { return heads * kv.head_dim / kPanelOutputs; }

// A thread's part of the queries, keys and values; kept for the next call.
struct Part {
  Matrix q, k, v;
};

}  // namespace

void MatmulQkv(Queue& queue, const MatmulInput& input, const QkvJobs& jobs, const AttentionPlan& plan,
               const KvLayer& kv) {
  const MatmulJob all[] = {jobs.q, jobs.k, jobs.v};
  const int64_t threads = queue.pool->num_threads(), heads = kv.num_kv_heads;
  const Weight &q = *jobs.q.weight, &k = *jobs.k.weight, &v = *jobs.v.weight;
  // Of fewer heads than threads RotateStoreAttend goes by rows; tiles like long ranges of panels.
  MatmulOrder order{.by_threads = heads >= threads && !queue.table->multiplies_by_tiles};
  const bool fetches = queue.table->fetches_lists && q.packed.type == PackedType::kOctets;
  const bool leaves_time = fetches && input.rows() >= kPrefetchRows;
  if (!order.by_threads || !leaves_time || !queue.in_region() || queue.alone) {
    return Matmul(queue, input, all, order);
  }
  static thread_local std::vector<const uint8_t*> pieces;  // kept for the next call
  const int64_t panels = (q.num_panels() + k.num_panels() + v.num_panels()) / threads;
  const int64_t bytes = q.packed.padded_inputs(), most = std::min(panels / 2, kWaitingBytes / bytes);
  ListKv(plan, kv, heads * queue.thread_idx / threads, heads * (queue.thread_idx + 1) / threads, bytes, most, pieces);
  const auto count = static_cast<int64_t>(pieces.size());
  PrefetchList later{.pieces = pieces.data(), .count = count, .wait = (panels - count) / 2};
  order.later = &later;
  Matmul(queue, input, all, order);
}

bool CanMatmulAttend(const Queue& queue, const QkvJobs& jobs, const KvLayer& kv) {
  const Weight &q = *jobs.q.weight, &k = *jobs.k.weight, &v = *jobs.v.weight;
  const bool alike = q.kind == k.kind && q.kind == v.kind && q.kind != InputKind::kF32;
  if (!alike || kv.head_dim % kPanelOutputs != 0) return false;
  const int64_t heads = kv.num_kv_heads, threads = queue.pool->num_threads();
  if (!queue.table->multiplies_by_tiles) return q.inputs <= kFewInputs && heads % threads == 0;
  return PanelsOf(heads, kv) >= 16 * threads && heads >= 2 * threads;
}

void MatmulAttend(Queue& queue, const MatmulInput& input, const QkvJobs& jobs, const HeadRotation& rotation,
                  const AttentionPlan& plan, const KvLayer& kv, Rows out) {
  const int64_t group = plan.group(), rows = input.rows(), dim = kv.head_dim;
  const Weight &q = *jobs.q.weight, &k = *jobs.k.weight, &v = *jobs.v.weight;
  for (const MatmulJob* job : {&jobs.q, &jobs.k, &jobs.v}) input.Check(*job);
  HYDRANT_CHECK(dim % kPanelOutputs == 0 && q.outputs == plan.options.num_heads * dim);
  HYDRANT_CHECK(k.outputs == kv.num_kv_heads * dim && v.outputs == k.outputs);
  if (rows == 0) return;
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
