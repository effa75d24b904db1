// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/attention_plan.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/check.h"

namespace hydrant::kernels {

void AttentionPlan::AddRow(const RowKv& row, AttentionRun& run) {
  AttentionRow& made = attention_rows.emplace_back();
  made.first = options.window > 0 ? std::max(0, row.position - options.window + 1) : 0;
  made.last = row.position;
  longest = std::max<int64_t>(longest, row.position + 1);
  // Nodes that lie where they would be committed count as in place. In plain decoding these are all rows.
  int32_t in_place = std::min(row.identity_length, row.position + 1);
  while (in_place <= row.position && row.path[in_place - row.identity_length] == in_place) ++in_place;
  made.prefix_end = in_place;
  made.in_place_end = in_place > row.position ? in_place : in_place / kBlockPositions * kBlockPositions;
  offsets_.push_back(static_cast<int64_t>(slots_.size()));
  source_offsets_.push_back(static_cast<int64_t>(value_sources_.size()));
  value_sources_.resize(value_sources_.size() + static_cast<size_t>(made.num_tail_blocks() * kBlockPositions));
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

// Gives each position of the row in the group's block a lane of the position's parity, behind the lanes of the row's
// earlier positions: a lane that holds its slot already, or a new one. Returns false where none is left, and leaves the
// group as it was.
bool AttentionPlan::JoinGroup(int64_t row, TailGroup& group) {
  const AttentionRow& joining = attention_rows[static_cast<size_t>(row)];
  const int32_t first = kBlockPositions * group.block;
  TailGroup joined = group;
  uint8_t* sources = value_sources_.data() + source_offsets_[static_cast<size_t>(row)] + first - joining.in_place_end;
  std::fill_n(sources, kBlockPositions, kNoPosition);
  int32_t next[2] = {0, 1};
  const int32_t end = std::min(joining.last + 1, first + kBlockPositions);
  for (int32_t p = std::max(joining.first, first); p < end; ++p) {
    const int64_t at = offsets_[static_cast<size_t>(row)] + p - joining.in_place_end;
    const int32_t slot = slots_[static_cast<size_t>(at)];
    int32_t& lane = next[p % 2];
    while (lane < kBlockPositions && joined.slots[lane] != slot && joined.slots[lane] != kNoSlot) lane += 2;
    if (lane >= kBlockPositions) return false;
    joined.slots[lane] = slot;
    sources[lane] = static_cast<uint8_t>(p - first);
    lane += 2;
  }
  joined.end = &joining + 1;
  group = joined;
  return true;
}

void AttentionPlan::GroupTails(AttentionRun& run) {
  run.group_begin = run.group_end = static_cast<int64_t>(tail_groups.size());
  if (run.tail_begin == run.tail_end) return;
  const std::span<const AttentionRow> all(attention_rows);
  const auto of_run = all.subspan(static_cast<size_t>(run.begin), static_cast<size_t>(run.end - run.begin));
  int32_t block = std::numeric_limits<int32_t>::max(), last = 0;
  for (const AttentionRow& row : of_run) {
    if (!row.has_tail()) continue;
    block = std::min(block, row.in_place_end / kBlockPositions);
    last = std::max(last, row.last);
  }
  for (; kBlockPositions * block <= last; ++block) {
    bool open = false;
    for (int64_t r = run.begin; r < run.end; ++r) {
      const AttentionRow& row = attention_rows[static_cast<size_t>(r)];
      if (!row.HasTailIn(block) || (open && JoinGroup(r, tail_groups.back()))) continue;
      TailGroup& group = tail_groups.emplace_back();
      group.begin = &row;
      group.block = block;
      std::ranges::fill(group.slots, kNoSlot);
      open = JoinGroup(r, group);
    }
  }
  run.group_end = static_cast<int64_t>(tail_groups.size());
}

void AttentionPlan::ListRows() {
  runs.clear();
  attention_rows.clear();
  tail_blocks.clear();
  tail_groups.clear();
  slots_.clear();
  lanes_.clear();
  value_sources_.clear();
  offsets_.clear();
  source_offsets_.clear();
  longest = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r == 0 || rows[r].blocks != rows[r - 1].blocks) {
      const auto tail = static_cast<int64_t>(tail_blocks.size());
      runs.push_back({.blocks = rows[r].blocks,
                      .begin = static_cast<int64_t>(r),
                      .tail_begin = tail,
                      .tail_end = tail,
                      .group_begin = 0,
                      .group_end = 0,
                      .slices = 0,
                      .first_item = 0});
    }
    AddRow(rows[r], runs.back());
    runs.back().end = static_cast<int64_t>(r) + 1;
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    if (!attention_rows[r].has_tail()) continue;
    attention_rows[r].slots = slots_.data() + offsets_[r];
    attention_rows[r].lanes = lanes_.data() + offsets_[r];
    attention_rows[r].value_sources = value_sources_.data() + source_offsets_[r];
  }
  for (AttentionRun& run : runs) GroupTails(run);
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
