// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/attention_ops.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

// Scratch on a 64-byte line, used inside one item only.
float* Scratch(int64_t floats) {
  static thread_local Matrix scratch;
  scratch.Resize(1, floats);
  return scratch.data();
}

struct Call {
  ConstRows q;  // from head `first_head` on
  int64_t first_head = 0;
  KvLayer kv;
  Rows out;
  const AttentionPlan& plan;
};

void RunItem(const KernelTable& table, const Call& call, const AttentionRun& run, int64_t item) {
  const AttentionPlan& plan = call.plan;
  const int64_t slice = (item - run.first_item) % run.slices, kv_head = (item - run.first_item) / run.slices;
  const int64_t row = run.begin + slice / plan.parts * plan.rows_per_item;
  const int64_t first_head = slice % plan.parts * plan.heads_per_item;
  const int64_t head = kv_head * plan.group() + first_head;
  AttentionArgs args;
  args.kv = call.kv.head(kv_head);
  args.group = std::min(plan.heads_per_item, plan.group() - first_head);
  args.num_rows = std::min(plan.rows_per_item, run.end - row);
  args.rows = plan.attention_rows.data() + row;
  args.blocks = run.blocks;
  args.tail_blocks = plan.tail_blocks.data() + run.tail_begin;
  args.num_tail_blocks = static_cast<int32_t>(run.tail_end - run.tail_begin);
  args.tail_groups = plan.tail_groups.data() + run.group_begin;
  args.num_tail_groups = run.group_end - run.group_begin;
  args.scale = plan.options.scale;
  args.q = call.q.row(row) + (head - call.first_head) * call.kv.head_dim;
  args.q_stride = call.q.stride;
  args.out = call.out.row(row) + head * call.kv.head_dim;
  args.out_stride = call.out.stride;
  args.next_head_bytes = kv_head + 1 < call.kv.num_kv_heads ? call.kv.num_blocks * call.kv.block_bytes() : 0;
  args.scratch = Scratch(AttentionScratch(call.kv.head_dim, args.group * args.num_rows, args.num_tail_blocks));
  table.attention(args);
}

int64_t OperationsPerItem(const AttentionPlan& plan, const KvLayer& kv) {
  const auto rows = static_cast<int64_t>(plan.rows.size());
  return plan.longest * kv.head_dim * std::min<int64_t>(kAttentionColumns, rows * plan.group()) / 8;
}

// Norms a head if `norm` [Dh] is not empty, and then rotates it.
void RotateHead(const KernelTable& table, float* head, const HeadRotation& rotation, std::span<const float> norm,
                int64_t r) {
  const int64_t half = rotation.cos.cols;
  HYDRANT_CHECK(norm.empty() || static_cast<int64_t>(norm.size()) == 2 * half);
  if (!norm.empty()) table.rms_norm(head, norm.data(), rotation.norms.eps, 2 * half, head);
  table.rope(head, rotation.cos.row(r), rotation.sin.row(r), half);
}

// Stores head `at` of k and v as head `kv_head` of the layer.
void StoreHead(const KernelTable& table, ConstRows k, ConstRows v, int64_t at, std::span<const RowKv> rows,
               const KvLayer& kv, int64_t kv_head) {
  StoreKvArgs args;
  args.kv = kv.head(kv_head);
  args.rows = rows.data();
  args.num_rows = k.rows;
  args.k = k.data + at * kv.head_dim;
  args.k_stride = k.stride;
  args.v = v.data + at * kv.head_dim;
  args.v_stride = v.stride;
  table.store_kv(args);
}

void RotateStoreHead(const KernelTable& table, const HeadRows& heads, int64_t at, const HeadRotation& rotation,
                     const AttentionPlan& plan, const KvLayer& kv) {
  const int64_t group = plan.group();
  for (int64_t r = 0; r < heads.q.rows; ++r) {
    for (int64_t g = 0; g < group; ++g) {
      RotateHead(table, heads.q.row(r) + (at * group + g) * kv.head_dim, rotation, rotation.norms.q, r);
    }
    RotateHead(table, heads.k.row(r) + at * kv.head_dim, rotation, rotation.norms.k, r);
  }
  StoreHead(table, heads.k, heads.v, at, plan.rows, kv, heads.first_kv_head + at);
}

}  // namespace

KvHead KvLayer::head(int64_t kv_head) const {
  KvHead head;
  head.keys = data + kv_head * num_blocks * block_bytes();
  head.values = head.keys + key_bytes();
  head.block_bytes = block_bytes();
  head.type = FloatTypeOf(dtype);
  head.head_dim = head_dim;
  return head;
}

uint8_t* KvLayer::key(const int32_t* blocks, int64_t kv_head, int64_t slot, int64_t d) const {
  uint8_t* keys = head(kv_head).keys + blocks[slot / kBlockPositions] * block_bytes();
  const int64_t place = slot % kBlockPositions;
  if (dtype == DType::kBF16) return keys + (d / 2 * kBlockPositions + place) * 4 + d % 2 * 2;
  return keys + (d * kBlockPositions + place) * static_cast<int64_t>(SizeOf(dtype));
}

uint8_t* KvLayer::value(const int32_t* blocks, int64_t kv_head, int64_t slot, int64_t d) const {
  uint8_t* values = head(kv_head).values + blocks[slot / kBlockPositions] * block_bytes();
  const int64_t place = slot % kBlockPositions, width = ValueWidth(head_dim);
  if (dtype == DType::kBF16) return values + (place / 2 * width + d) * 4 + place % 2 * 2;
  return values + (place * width + d) * static_cast<int64_t>(SizeOf(dtype));
}

void RotateHeads(Queue& queue, Rows q, Rows k, int64_t head_dim, const HeadRotation& rotation) {
  const ConstRows &cos = rotation.cos, &sin = rotation.sin;
  HYDRANT_CHECK(head_dim > 0 && head_dim % 2 == 0 && q.cols % head_dim == 0 && k.cols % head_dim == 0);
  HYDRANT_CHECK(cos.rows == q.rows && sin.rows == q.rows && k.rows == q.rows && cos.cols == head_dim / 2);
  ForItems(queue, q.rows, 4 * (q.cols + k.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < q.cols; c += head_dim) {
        RotateHead(*queue.table, q.row(r) + c, rotation, rotation.norms.q, r);
      }
      for (int64_t c = 0; c < k.cols; c += head_dim) {
        RotateHead(*queue.table, k.row(r) + c, rotation, rotation.norms.k, r);
      }
    }
  });
}

// Threads share heads and not rows, because neighbouring slots share cache lines.
void StoreKv(Queue& queue, ConstRows k, ConstRows v, std::span<const RowKv> rows, const KvLayer& kv) {
  HYDRANT_CHECK(k.cols == kv.num_kv_heads * kv.head_dim && v.cols == k.cols && k.rows == v.rows);
  HYDRANT_CHECK(k.rows == static_cast<int64_t>(rows.size()));
  HYDRANT_CHECK(kv.dtype != DType::kBF16 || kv.head_dim % 2 == 0);
  ForItems(queue, kv.num_kv_heads, 2 * k.rows * kv.head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) StoreHead(*queue.table, k, v, h, rows, kv, h);
  });
}

namespace {

// The blocks with a run's positions and slots, and how many slots of the last block are in use.
struct BlocksInUse {
  int64_t begin = 0, end = 0, last_slots = 0;
};

BlocksInUse BlocksOf(const AttentionPlan& plan, const AttentionRun& run) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  for (int64_t r = run.begin; r < run.end; ++r) {
    const AttentionRow& row = plan.attention_rows[static_cast<size_t>(r)];
    const RowKv& kv_row = plan.rows[static_cast<size_t>(r)];
    first = std::min<int64_t>(first, row.first);
    last = std::max<int64_t>({last, row.last, kv_row.slot});
    for (int32_t p = row.in_place_end; p <= row.last; ++p)
      last = std::max<int64_t>(last, row.slots[p - row.in_place_end]);
  }
  return {first / kBlockPositions, last / kBlockPositions + 1, last % kBlockPositions + 1};
}

}  // namespace

void ListKv(const AttentionPlan& plan, const KvLayer& kv, int64_t head_begin, int64_t head_end, int64_t bytes,
            int64_t most, std::vector<const uint8_t*>& pieces) {
  HYDRANT_CHECK(bytes > 0 && head_begin >= 0 && head_end <= kv.num_kv_heads);
  pieces.clear();
  for (const AttentionRun& run : plan.runs) {
    const BlocksInUse blocks = BlocksOf(plan, run);
    for (int64_t h = head_begin; h < head_end; ++h) {
      const KvHead head = kv.head(h);
      for (int64_t b = blocks.begin; b < blocks.end; ++b) {
        const uint8_t* at = head.keys + run.blocks[b] * head.block_bytes;
        // Two positions at a time: values of bf16 lie in pairs.
        const int64_t slots = b + 1 < blocks.end ? kBlockPositions : (blocks.last_slots + 1) / 2 * 2;
        const int64_t used = kv.key_bytes() + kv.value_bytes() * slots / kBlockPositions;
        for (int64_t i = 0; i < used; i += bytes) {
          if (static_cast<int64_t>(pieces.size()) == most) return;
          pieces.push_back(at + std::max<int64_t>(0, std::min(i, used - bytes)));  // the last ends at `used`
        }
      }
    }
  }
}

namespace {

template <typename Word>
void CopyStrided(const uint8_t* from, int64_t count, int64_t stride, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * stride, from + i * stride, sizeof(Word));
}

// Copies a slot. Keys lie in units of a step's dimensions, a block's width apart. Values of bf16 lie in halves of
// pairs.
void CopySlot(const KvLayer& kv, const int32_t* blocks, int64_t head, int32_t from, int32_t to) {
  const uint8_t* key = kv.key(blocks, head, from, 0);
  uint8_t* key_to = kv.key(blocks, head, to, 0);
  const uint8_t* value = kv.value(blocks, head, from, 0);
  uint8_t* value_to = kv.value(blocks, head, to, 0);
  if (kv.dtype == DType::kBF16) {
    CopyStrided<uint32_t>(key, kv.head_dim / 2, kBlockPositions * 4, key_to);
    CopyStrided<uint16_t>(value, kv.head_dim, 4, value_to);
    return;
  }
  if (kv.dtype == DType::kF32) {
    CopyStrided<uint32_t>(key, kv.head_dim, kBlockPositions * 4, key_to);
  } else {
    CopyStrided<uint16_t>(key, kv.head_dim, kBlockPositions * 2, key_to);
  }
  std::memcpy(value_to, value, static_cast<size_t>(kv.head_dim) * SizeOf(kv.dtype));
}

}  // namespace

void CopySlots(const KvLayer& kv, const int32_t* blocks, std::span<const int32_t> from, std::span<const int32_t> to) {
  HYDRANT_CHECK(from.size() == to.size());
  for (int64_t h = 0; h < kv.num_kv_heads; ++h) {
    for (size_t i = 0; i < from.size(); ++i) CopySlot(kv, blocks, h, from[i], to[i]);
  }
}

void Attention(Queue& queue, ConstRows q, const AttentionPlan& plan, const KvLayer& kv, Rows out) {
  HYDRANT_CHECK(kv.num_kv_heads == plan.num_kv_heads && q.cols == plan.options.num_heads * kv.head_dim);
  HYDRANT_CHECK(q.rows == out.rows && q.cols == out.cols && q.rows == static_cast<int64_t>(plan.rows.size()));
  HYDRANT_CHECK(kv.dtype != DType::kBF16 || kv.head_dim % 2 == 0);
  const Call call{.q = q, .first_head = 0, .kv = kv, .out = out, .plan = plan};
  ForItemsShared(queue, plan.num_items, OperationsPerItem(plan, kv), [&](int64_t begin, int64_t end) {
    size_t run = 0;
    for (int64_t item = begin; item < end; ++item) {
      while (run + 1 < plan.runs.size() && plan.runs[run + 1].first_item <= item) ++run;
      RunItem(*queue.table, call, plan.runs[run], item);
    }
  });
}

void Attention(Queue& queue, ConstRows q, std::span<const RowKv> rows, const KvLayer& kv,
               const AttentionOptions& options, Rows out) {
  static thread_local AttentionPlan plan;
  plan.Make(rows, options, kv.num_kv_heads, queue.pool->num_threads());
  const AttentionPlan& made = plan;  // this thread's own, which the workers read too
  Attention(queue, q, made, kv, out);
}

void RotateStore(Queue& queue, Rows k, ConstRows v, const HeadRotation& rotation, std::span<const RowKv> rows,
                 const KvLayer& kv) {
  HYDRANT_CHECK(k.cols == kv.num_kv_heads * kv.head_dim && v.cols == k.cols && k.rows == v.rows);
  HYDRANT_CHECK(k.rows == static_cast<int64_t>(rows.size()) && rotation.cos.rows == k.rows);
  HYDRANT_CHECK(kv.dtype != DType::kBF16 || kv.head_dim % 2 == 0);
  // The same heads as RotateStoreAttend gives to this thread. (Where it gives others, it waits for all before it
  // attends.)
  ForOwnItems(queue, kv.num_kv_heads, 6 * k.rows * kv.head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      for (int64_t r = 0; r < k.rows; ++r) {
        RotateHead(*queue.table, k.row(r) + h * kv.head_dim, rotation, rotation.norms.k, r);
      }
      StoreHead(*queue.table, k, v, h, rows, kv, h);
    }
  });
}

void RotateStoreAttend(Queue& queue, Rows q, Rows k, ConstRows v, const HeadRotation& rotation,
                       const AttentionPlan& plan, const KvLayer& kv, Rows out) {
  const int64_t threads = queue.pool->num_threads(), rows = q.rows;
  if (kv.num_kv_heads < threads && rows > 1) {
    RotateHeads(queue, q, k, kv.head_dim, rotation);
    StoreKv(queue, k, v, plan.rows, kv);
    return Attention(queue, q, plan, kv, out);
  }
  HYDRANT_CHECK(q.cols == plan.options.num_heads * kv.head_dim && k.cols == kv.num_kv_heads * kv.head_dim);
  HYDRANT_CHECK(v.cols == k.cols && k.rows == rows && v.rows == rows && rows == static_cast<int64_t>(plan.rows.size()));
  const int64_t group = plan.group(), operations = rows * kv.head_dim * (4 * group + 6);
  ForOwnItems(queue, kv.num_kv_heads, operations, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) RotateStoreHead(*queue.table, {0, q, k, v}, h, rotation, plan, kv);
  });
  // A thread that attends with the heads that it has stored itself need not wait for the others.
  const bool same_heads = plan.items_are_heads() && !SharesItems(queue, plan.num_items, OperationsPerItem(plan, kv));
  if (!same_heads) Sync(queue);
  Attention(queue, q, plan, kv, out);
}

void AttendHeads(const KernelTable& table, const HeadRows& heads, const HeadRotation& rotation,
                 const AttentionPlan& plan, const KvLayer& kv, Rows out) {
  const int64_t group = plan.group(), first = heads.first_kv_head, count = heads.k.cols / kv.head_dim;
  HYDRANT_CHECK(heads.k.cols == count * kv.head_dim && heads.q.cols == group * heads.k.cols);
  HYDRANT_CHECK(heads.v.cols == heads.k.cols && first >= 0 && first + count <= kv.num_kv_heads);
  HYDRANT_CHECK(heads.q.rows == static_cast<int64_t>(plan.rows.size()) && heads.q.rows == out.rows);
  HYDRANT_CHECK(kv.num_kv_heads == plan.num_kv_heads && out.cols == plan.options.num_heads * kv.head_dim);
  for (int64_t at = 0; at < count; ++at) RotateStoreHead(table, heads, at, rotation, plan, kv);
  const Call call{.q = heads.q, .first_head = first * group, .kv = kv, .out = out, .plan = plan};
  for (const AttentionRun& run : plan.runs) {
    for (int64_t item = first * run.slices; item < (first + count) * run.slices; ++item) {
      RunItem(table, call, run, run.first_item + item);
    }
  }
}

}  // namespace hydrant::kernels
