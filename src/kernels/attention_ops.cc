// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/kernels.h"

namespace hydrant::kernels {
namespace {

FloatType TypeOf(DType dtype) {
  HYDRANT_CHECK(IsFloat(dtype));
  return dtype == DType::kF32 ? FloatType::kF32 : dtype == DType::kBF16 ? FloatType::kBF16 : FloatType::kF16;
}

// Rows of one sequence that stand together.
struct Run {
  const int32_t* blocks = nullptr;
  int64_t begin = 0, end = 0;
  int64_t tail_begin = 0, tail_end = 0;  // in Plan::tail_blocks
  int64_t slices = 0;                    // items per kv head
  int64_t first_item = 0;
};

// What every layer's and head's attention over the same rows needs to know. Made anew by every call: it costs less than
// a microsecond for a tree.
struct Plan {
  std::vector<Run> runs;
  std::vector<AttentionRow> rows;
  std::vector<int32_t> tail_blocks, slots, lanes;
  std::vector<int64_t> offsets;  // of a row in slots and lanes
  int64_t longest = 0;           // positions of a row

  void Make(std::span<const RowKv> all, int32_t window);
  void AddRow(const RowKv& row, int32_t window, Run& run);
};

void Plan::AddRow(const RowKv& row, int32_t window, Run& run) {
  AttentionRow& made = rows.emplace_back();
  made.first = window > 0 ? std::max(0, row.position - window + 1) : 0;
  made.last = row.position;
  longest = std::max<int64_t>(longest, row.position + 1);
  // Nodes that lie where they would be committed are in place: all rows of plain decoding.
  int32_t in_place = std::min(row.identity_length, row.position + 1);
  while (in_place <= row.position && row.path[in_place - row.identity_length] == in_place) ++in_place;
  made.prefix_end = in_place;
  made.in_place_end = in_place > row.position ? in_place : in_place / kBlockPositions * kBlockPositions;
  offsets.push_back(static_cast<int64_t>(slots.size()));
  for (int32_t p = made.in_place_end; p <= row.position; ++p) {
    const int32_t slot = p < in_place ? p : row.path[p - row.identity_length];
    const int32_t block = slot / kBlockPositions;
    const auto first = tail_blocks.begin() + run.tail_begin;
    const auto found = std::find(first, tail_blocks.end(), block);
    slots.push_back(slot);
    lanes.push_back(static_cast<int32_t>(found - first) * kBlockPositions + slot % kBlockPositions);
    if (found == tail_blocks.end()) tail_blocks.push_back(block);
  }
  run.tail_end = static_cast<int64_t>(tail_blocks.size());
}

void Plan::Make(std::span<const RowKv> all, int32_t window) {
  runs.clear();
  rows.clear();
  tail_blocks.clear();
  slots.clear();
  lanes.clear();
  offsets.clear();
  longest = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    if (r == 0 || all[r].blocks != all[r - 1].blocks) {
      const auto tail = static_cast<int64_t>(tail_blocks.size());
      runs.push_back({.blocks = all[r].blocks,
                      .begin = static_cast<int64_t>(r),
                      .tail_begin = tail,
                      .tail_end = tail,
                      .slices = 0,
                      .first_item = 0});
    }
    AddRow(all[r], window, runs.back());
    runs.back().end = static_cast<int64_t>(r) + 1;
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].in_place_end > rows[r].last) continue;
    rows[r].slots = slots.data() + offsets[r];
    rows[r].lanes = lanes.data() + offsets[r];
  }
}

// On a 64-byte line; used inside one item only.
float* Scratch(int64_t floats) {
  static thread_local Matrix scratch;
  scratch.Resize(1, floats);
  return scratch.data();
}

// How a call is cut into items: (run, kv head, rows of the run, part of the head's group).
struct Cut {
  int64_t rows = 1;              // of a run, per item
  int64_t heads = 1, parts = 1;  // of a group, per item; items per group
};

Cut CutFor(const Plan& plan, int64_t group, int64_t num_kv_heads, int num_threads) {
  Cut cut;
  cut.parts = (group + kAttentionColumns - 1) / kAttentionColumns;
  cut.heads = (group + cut.parts - 1) / cut.parts;
  cut.rows = std::max<int64_t>(1, kAttentionColumns / cut.heads);
  // Few heads for many threads: smaller items, though keys and values are then read more than once.
  const auto items = [&] {
    int64_t count = 0;
    for (const Run& run : plan.runs) count += (run.end - run.begin + cut.rows - 1) / cut.rows;
    return count * cut.parts * num_kv_heads;
  };
  while (cut.rows * cut.heads > 8 && cut.rows > 1 && items() < num_threads) cut.rows = (cut.rows + 1) / 2;
  return cut;
}

struct Call {
  ConstRows q;
  KvLayer kv;
  int64_t group = 0;
  float scale = 0;
  Rows out;
  const Plan* plan = nullptr;
  Cut cut;
};

// Items of one kv head stand together, so that a thread finds its keys and values in its cache.
int64_t NumberItems(Plan& plan, const Cut& cut, int64_t num_kv_heads) {
  int64_t items = 0;
  for (Run& run : plan.runs) {
    run.slices = (run.end - run.begin + cut.rows - 1) / cut.rows * cut.parts;
    run.first_item = items;
    items += run.slices * num_kv_heads;
  }
  return items;
}

void RunItem(const KernelTable& table, const Call& call, const Run& run, int64_t item) {
  const int64_t slice = (item - run.first_item) % run.slices, kv_head = (item - run.first_item) / run.slices;
  const int64_t row = run.begin + slice / call.cut.parts * call.cut.rows;
  const int64_t first_head = slice % call.cut.parts * call.cut.heads;
  const int64_t head = kv_head * call.group + first_head;
  AttentionArgs args;
  args.kv = call.kv.head(kv_head);
  args.group = std::min(call.cut.heads, call.group - first_head);
  args.num_rows = std::min(call.cut.rows, run.end - row);
  args.rows = call.plan->rows.data() + row;
  args.blocks = run.blocks;
  args.tail_blocks = call.plan->tail_blocks.data() + run.tail_begin;
  args.num_tail_blocks = static_cast<int32_t>(run.tail_end - run.tail_begin);
  args.scale = call.scale;
  args.q = call.q.row(row) + head * call.kv.head_dim;
  args.q_stride = call.q.stride;
  args.out = call.out.row(row) + head * call.kv.head_dim;
  args.out_stride = call.out.stride;
  args.next_head_bytes = kv_head + 1 < call.kv.num_kv_heads ? call.kv.num_blocks * call.kv.block_bytes() : 0;
  args.scratch = Scratch(AttentionScratch(call.kv.head_dim, args.group * args.num_rows, args.num_tail_blocks));
  table.attention(args);
}

}  // namespace

KvHead KvLayer::head(int64_t kv_head) const {
  KvHead head;
  head.keys = data + kv_head * num_blocks * block_bytes();
  head.values = head.keys + key_bytes();
  head.block_bytes = block_bytes();
  head.type = TypeOf(dtype);
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

// By heads and not by rows: neighbouring slots share cache lines.
void StoreKv(Queue& queue, ConstRows k, ConstRows v, std::span<const RowKv> rows, const KvLayer& kv) {
  HYDRANT_CHECK(k.cols == kv.num_kv_heads * kv.head_dim && v.cols == k.cols && k.rows == v.rows);
  HYDRANT_CHECK(k.rows == static_cast<int64_t>(rows.size()));
  HYDRANT_CHECK(kv.dtype != DType::kBF16 || kv.head_dim % 2 == 0);
  ForItems(queue, kv.num_kv_heads, 2 * k.rows * kv.head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      StoreKvArgs args;
      args.kv = kv.head(h);
      args.rows = rows.data();
      args.num_rows = k.rows;
      args.k = k.data + h * kv.head_dim;
      args.k_stride = k.stride;
      args.v = v.data + h * kv.head_dim;
      args.v_stride = v.stride;
      queue.table->store_kv(args);
    }
  });
}

namespace {

template <typename Word>
void CopyStrided(const uint8_t* from, int64_t count, int64_t stride, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * stride, from + i * stride, sizeof(Word));
}

// Keys in units of a step's dimensions, a block's width apart; values of bf16 in halves of a pair.
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

void Attention(Queue& queue, ConstRows q, std::span<const RowKv> rows, const KvLayer& kv,
               const AttentionOptions& options, Rows out) {
  const int64_t group = options.num_heads / kv.num_kv_heads;
  HYDRANT_CHECK(options.num_heads == group * kv.num_kv_heads && q.cols == options.num_heads * kv.head_dim);
  HYDRANT_CHECK(q.rows == out.rows && q.cols == out.cols && q.rows == static_cast<int64_t>(rows.size()));
  HYDRANT_CHECK(kv.dtype != DType::kBF16 || kv.head_dim % 2 == 0);
  static thread_local Plan plan_of_thread;
  Plan& plan = plan_of_thread;  // the calling thread's, for the workers too
  plan.Make(rows, options.window);
  Call call{.q = q,
            .kv = kv,
            .group = group,
            .scale = options.scale,
            .out = out,
            .plan = &plan,
            .cut = CutFor(plan, group, kv.num_kv_heads, queue.pool->num_threads())};
  const int64_t items = NumberItems(plan, call.cut, kv.num_kv_heads);
  const int64_t columns = std::min<int64_t>(kAttentionColumns, q.rows * group);
  ForItemsShared(queue, items, plan.longest * kv.head_dim * columns / 8, [&](int64_t begin, int64_t end) {
    size_t run = 0;
    for (int64_t item = begin; item < end; ++item) {
      while (run + 1 < plan.runs.size() && plan.runs[run + 1].first_item <= item) ++run;
      RunItem(*queue.table, call, plan.runs[run], item);
    }
  });
}

}  // namespace hydrant::kernels
