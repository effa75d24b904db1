// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_plan.h"

#include <algorithm>

#include "base/check.h"

namespace hydrant::kernels {

void AttentionPlan::AddRow(const RowKv& row, AttentionRun& run) {
  AttentionRow& made = attention_rows.emplace_back();
  made.first = options.window > 0 ? std::max(0, row.position - options.window + 1) : 0;
  made.last = row.position;
  longest = std::max<int64_t>(longest, row.position + 1);
  // Nodes that lie where they would be committed are in place: all rows of plain decoding.
  int32_t in_place = std::min(row.identity_length, row.position + 1);
  while (in_place <= row.position && row.path[in_place - row.identity_length] == in_place) ++in_place;
  made.prefix_end = in_place;
  made.in_place_end = in_place > row.position ? in_place : in_place / kBlockPositions * kBlockPositions;
  offsets_.push_back(static_cast<int64_t>(slots_.size()));
  for (int32_t p = made.in_place_end; p <= row.position; ++p) {
    const int32_t slot = p < in_place ? p : row.path[p - row.identity_length];
    const int32_t block = slot / kBlockPositions;
    const auto first = tail_blocks.begin() + run.tail_begin;
    const auto found = std::find(first, tail_blocks.end(), block);
    slots_.push_back(slot);
    lanes_.push_back(static_cast<int32_t>(found - first) * kBlockPositions + slot % kBlockPositions);
    if (found == tail_blocks.end()) tail_blocks.push_back(block);
  }
  run.tail_end = static_cast<int64_t>(tail_blocks.size());
}

void AttentionPlan::ListRows() {
  runs.clear();
  attention_rows.clear();
  tail_blocks.clear();
  slots_.clear();
  lanes_.clear();
  offsets_.clear();
  longest = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r == 0 || rows[r].blocks != rows[r - 1].blocks) {
      const auto tail = static_cast<int64_t>(tail_blocks.size());
      runs.push_back({.blocks = rows[r].blocks,
                      .begin = static_cast<int64_t>(r),
                      .tail_begin = tail,
                      .tail_end = tail,
                      .slices = 0,
                      .first_item = 0});
    }
    AddRow(rows[r], runs.back());
    runs.back().end = static_cast<int64_t>(r) + 1;
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    if (attention_rows[r].in_place_end > attention_rows[r].last) continue;
    attention_rows[r].slots = slots_.data() + offsets_[r];
    attention_rows[r].lanes = lanes_.data() + offsets_[r];
  }
}

void AttentionPlan::CutIntoItems(int num_threads) {
  parts = (group() + kAttentionColumns - 1) / kAttentionColumns;
  heads_per_item = (group() + parts - 1) / parts;
  rows_per_item = std::max<int64_t>(1, kAttentionColumns / heads_per_item);
  const auto slices_of = [&](const AttentionRun& run) {
    return (run.end - run.begin + rows_per_item - 1) / rows_per_item * parts;
  };
  const auto count = [&] {
    int64_t slices = 0;
    for (const AttentionRun& run : runs) slices += slices_of(run);
    return slices * num_kv_heads;
  };
  // Few heads for many threads: smaller items, though keys and values are then read more than once.
  while (rows_per_item * heads_per_item > 8 && rows_per_item > 1 && count() < num_threads) {
    rows_per_item = (rows_per_item + 1) / 2;
  }
  num_items = 0;
  for (AttentionRun& run : runs) {
    run.slices = slices_of(run);
    run.first_item = num_items;
    num_items += run.slices * num_kv_heads;
  }
}

void AttentionPlan::Make(std::span<const RowKv> kv_rows, const AttentionOptions& attention_options, int64_t kv_heads,
                         int num_threads) {
  HYDRANT_CHECK(kv_heads > 0 && attention_options.num_heads % kv_heads == 0);
  rows = kv_rows;
  options = attention_options;
  num_kv_heads = kv_heads;
  ListRows();
  CutIntoItems(num_threads);
}

}  // namespace hydrant::kernels
