// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/matmul_attend.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

// Size of the outputs that are multiplied before they are attended to: less than half of the second-level cache. Time
// over that of multiplying all outputs first (Intel with AMX, 7B w4a8, five runs in turn):
//   size                    200 KB   400 KB   800 KB
//   64 rows                 0.97     0.98     0.98
//   a prompt by 128 rows    1.03     1.02     1.00
constexpr int64_t kPartBytes = 800 * 1024;

// Most inputs for which MatmulAttend pays without tiles: of models that stay in the caches, where it counts that there
// is a barrier less and that results stay with a thread. Larger weights come from memory, and then as more streams.
// Time over that of the separate ops (Intel with AMX, two threads; embedded model: 256 inputs, w8a8):
//   embedded model, `avx512`, 1 to 8 rows              0.94 to 0.97
//   embedded model, `avx512`, 16 to 128 rows, prompt   0.93 to 0.96
//   embedded model, `avx2`, 1 to 16 rows               0.95 to 0.97
//   embedded model, one thread                         0.99 to 1.00
//   1B (2,048 inputs), w4a8                            0.97 to 0.99
//   7B, 1, 8 and 16 rows                               1.06, 1.02 and 0.99
constexpr int64_t kFewInputs = 768;

// Most keys and values that may wait for attention in the second-level cache, while weights go through it.
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
  // With fewer heads than threads RotateStoreAttend shares rows, not heads. Tiles prefer long ranges of panels.
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
