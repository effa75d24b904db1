// SPDX-License-Identifier: Apache-2.0
// What the attention of every layer over the same rows needs to know: where each row finds its positions, and how the
// work is cut into items. It is made once for a forward pass, before its region, and read by all threads. (Made by
// every thread for every layer, it took 4 % of a pass of 8 rows of the 14 M model on AMD Zen 4.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_arguments.h"

namespace hydrant::kernels {

struct AttentionOptions {
  int64_t num_heads = 0;  // H, a multiple of the layer's Hk
  float scale = 0;        // 1 / sqrt(Dh)
  int32_t window = 0;     // 0 = none; W = keys p - W + 1 .. p
};

// Rows of one sequence that stand together.
struct AttentionRun {
  const int32_t* blocks = nullptr;
  int64_t begin = 0, end = 0;
  int64_t tail_begin = 0, tail_end = 0;    // in AttentionPlan::tail_blocks
  int64_t group_begin = 0, group_end = 0;  // in AttentionPlan::tail_groups
  int64_t slices = 0;                      // items per kv head
  int64_t first_item = 0;
};

struct AttentionPlan {
  // `kv_rows` must stay as they are for as long as the plan is used.
  void Make(std::span<const RowKv> kv_rows, const AttentionOptions& attention_options, int64_t kv_heads,
            int num_threads);

  int64_t group() const { return options.num_heads / num_kv_heads; }
  // Whether item i is the whole of kv head i: then a thread's share of the items is its share of the heads.
  bool items_are_heads() const { return num_items == num_kv_heads; }

  std::span<const RowKv> rows;
  AttentionOptions options;
  int64_t num_kv_heads = 1;
  std::vector<AttentionRun> runs;
  std::vector<AttentionRow> attention_rows;  // [R]
  std::vector<int32_t> tail_blocks;
  std::vector<TailGroup> tail_groups;
  int64_t longest = 0;  // most positions of a row
  // An item is rows_per_item rows of a run by heads_per_item query heads of a kv head's group. A group has `parts` such
  // parts. Items of one kv head stand together, so that a thread finds its keys and values in its cache.
  int64_t rows_per_item = 1, heads_per_item = 1, parts = 1;
  int64_t num_items = 0;

 private:
  void ListRows();
  void AddRow(const RowKv& row, AttentionRun& run);
  void GroupTails(AttentionRun& run);
  bool JoinGroup(int64_t row, TailGroup& group);
  void CutIntoItems(int num_threads);

  std::vector<int32_t> slots_, lanes_;
  std::vector<uint8_t> value_sources_;
  std::vector<int64_t> offsets_, source_offsets_;  // of a row: its begin in slots_ and lanes_, and in value_sources_
};

}  // namespace hydrant::kernels
