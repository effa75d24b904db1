// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::kernels::attention_plan_test {
namespace {

// Rows of a tree after `committed` positions, and of a second sequence's.
struct TreeRows {
  std::vector<std::vector<int32_t>> paths;
  std::vector<RowKv> rows;
  int32_t blocks[2] = {};  // told apart by address only

  explicit TreeRows(int32_t committed, const std::vector<int32_t>& parents) {
    for (int sequence = 0; sequence < 2; ++sequence) {
      std::vector<std::vector<int32_t>> made;
      for (size_t n = 0; n < parents.size(); ++n) {
        std::vector<int32_t> path = parents[n] < 0 ? std::vector<int32_t>() : made[static_cast<size_t>(parents[n])];
        path.push_back(committed + static_cast<int32_t>(n));
        made.push_back(std::move(path));
      }
      for (auto& path : made) paths.push_back(std::move(path));
    }
    for (size_t r = 0; r < paths.size(); ++r) {
      rows.push_back({blocks + (r < parents.size() ? 0 : 1), paths[r].data(),
                      committed + static_cast<int32_t>(paths[r].size()) - 1, committed, paths[r].back()});
    }
  }
};

AttentionPlan Planned(const TreeRows& tree, int32_t window) {
  AttentionPlan plan;
  plan.Make(tree.rows, {.num_heads = 2, .scale = 1.0F, .window = window}, 2, 1);
  return plan;
}

// All of a row's positions in a group's block ascend over lanes of their parity and find their slots there.
void CheckRowOfGroup(const AttentionRow& row, const TailGroup& group, const std::string& name) {
  const int32_t first = kBlockPositions * group.block;
  const uint8_t* sources = row.value_sources + first - row.in_place_end;
  const int32_t start = std::max(first, row.first);
  int32_t next[2] = {start + start % 2, start + 1 - start % 2}, found = 0;  // of even and odd positions
  for (int32_t lane = 0; lane < kBlockPositions; ++lane) {
    if (sources[lane] == kNoPosition) continue;
    const int32_t p = first + sources[lane];
    ASSERT_EQ(p, next[lane % 2]) << name;  // all of the lane's parity, ascending
    ASSERT_EQ(group.slots[lane], row.slots[p - row.in_place_end]) << name;
    next[lane % 2] += 2;
    ++found;
  }
  const int32_t last = std::min(row.last, first + kBlockPositions - 1);
  ASSERT_EQ(found, last - start + 1) << name;
}

TEST(AttentionPlanTest, EveryTailIsInOneGroupAndFindsItsSlots) {
  std::mt19937 random(5);
  for (const int32_t committed : {1, 30, 32, 45, 61, 63, 64}) {
    for (const int32_t window : {0, 3, 33}) {
      for (const int32_t num_nodes : {2, 9, 40, 90}) {
        std::vector<int32_t> parents = {-1};
        for (int32_t n = 1; n < num_nodes; ++n) {
          parents.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(n)));
        }
        const TreeRows tree(committed, parents);
        const AttentionPlan plan = Planned(tree, window);
        const std::string name = std::to_string(committed) + " committed, " + std::to_string(num_nodes) +
                                 " nodes, window " + std::to_string(window);
        ASSERT_EQ(plan.runs.size(), 2U);
        std::map<std::pair<const AttentionRow*, int32_t>, int> seen;
        for (const AttentionRun& run : plan.runs) {
          for (int64_t g = run.group_begin; g < run.group_end; ++g) {
            const TailGroup& group = plan.tail_groups[static_cast<size_t>(g)];
            ASSERT_TRUE(g == run.group_begin || group.block >= plan.tail_groups[static_cast<size_t>(g) - 1].block);
            ASSERT_GE(group.begin, plan.attention_rows.data() + run.begin) << name;
            ASSERT_LE(group.end, plan.attention_rows.data() + run.end) << name;
            for (const AttentionRow* row = group.begin; row < group.end; ++row) {
              if (!row->HasTailIn(group.block)) continue;
              ++seen[{row, group.block}];
              ASSERT_NO_FATAL_FAILURE(CheckRowOfGroup(*row, group, name));
            }
          }
        }
        for (const AttentionRow& row : plan.attention_rows) {
          for (int32_t block = row.in_place_end / kBlockPositions; row.has_tail() && block <= row.last / 32; ++block) {
            EXPECT_EQ((seen[{&row, block}]), row.HasTailIn(block) ? 1 : 0) << name;
          }
        }
      }
    }
  }
}

// A root, its four children, and three children of each: a lane for each node, and the root's and its first child's
// slots are in place for all.
TEST(AttentionPlanTest, NodesOfATreeShareTheirAncestorsLanes) {
  std::vector<int32_t> parents = {-1, 0, 0, 0, 0};
  for (int32_t n = 0; n < 12; ++n) parents.push_back(1 + n / 3);
  const TreeRows tree(32, parents);
  const AttentionPlan plan = Planned(tree, 0);
  ASSERT_EQ(plan.tail_groups.size(), 2U);  // one for each sequence
  const TailGroup& group = plan.tail_groups[0];
  EXPECT_EQ(group.end - group.begin, 15);  // all but the root and its first child
  EXPECT_EQ(std::ranges::count_if(group.slots, [](int32_t slot) { return slot != kNoSlot; }), 17);
}

}  // namespace
}  // namespace hydrant::kernels::attention_plan_test
